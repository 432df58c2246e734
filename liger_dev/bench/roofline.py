"""Bytes, times and a copy bandwidth in; a pass's share of that bandwidth and the least time that it can take out.

A share above 1 can't be: the time was not that of the work, and nothing measured with it is to be believed.
"""

from collections.abc import Sequence

from liger_dev.bench.csv import Measurement
from liger_dev.errors import KERNEL_FAILED
from liger_dev.errors import LigerDevError

Place = tuple[str | int | float, ...]


class ImpossibleFigure(LigerDevError):
    """A measured time is shorter than the device's memory allows."""

    exit_code = KERNEL_FAILED


def share(size: int, milliseconds: float, bandwidth: float) -> float:
    """`size` bytes in so many milliseconds as a share of `bandwidth` bytes a second."""
    return size / (milliseconds * 1e-3) / bandwidth


def is_impossible(share: float) -> bool:
    """Whether memory does not allow it."""
    return share > 1.0


def check_share(size: int, milliseconds: float, bandwidth: float, where: str) -> None:
    """Raises ImpossibleFigure where the bytes can't be moved in that time. `where` names provider, mode and size."""
    found = share(size, milliseconds, bandwidth)
    if is_impossible(found):
        raise ImpossibleFigure(
            f"{size / 1e6:.1f} MB in {milliseconds:.4f} ms is {found:.2f} of the measured copy bandwidth of "
            f"{bandwidth / 1e12:.2f} TB/s, which can't be",
            where,
            "check that the kernel does its work: that it writes every output, and that it runs on the timed stream",
        )


def least_times(rows: Sequence[Measurement]) -> dict[Place, float]:
    """The milliseconds that a pass's bytes take at the copy bandwidth, by `place`.

    A provider's share of that bandwidth and the device time that it comes from give it; a pass has no entry if `rows`
    do not hold both.
    """
    times = {(row.kernel_provider, place(row)): row.y_value_50 for row in rows if row.metric_name == "device_time"}
    return {
        place(row): row.y_value_50 * times[row.kernel_provider, place(row)]
        for row in rows
        if row.metric_name == "bandwidth_share" and (row.kernel_provider, place(row)) in times
    }


def place(row: Measurement) -> Place:
    """What the rows of all providers and metrics of one pass have in common: kernel, mode, configuration and x."""
    setting = (row.kernel_name, row.kernel_operation_mode, row.gpu_name, row.extra_benchmark_config_str, row.x_name)
    return (*setting, row.x_value)
