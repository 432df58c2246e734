"""What a reviewer may choose about the kernels: the options that the profile's edits turn into."""

from dataclasses import asdict
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Options:
    """Defaults are the compiler's own choice.

    Args:
        saved: names of the tensors that forward saves for backward; None: the compiler decides.
        one_row: the stages ("forward", "backward") whose programs take one row at a time.
        programs_per_sm: programs of a persistent backward kernel for each multiprocessor; 0: as `persistent_settings` has it.
        block_cols: columns of the block, a power of two; 0: the next power of two of the row's length.
        block_size: elements a program takes in an element-wise kernel.
        tuning: the profile's records of measured settings, as JSON.
        tunable: every launch looks its settings up, in a table that may be empty.
    """

    saved: tuple[str, ...] | None = None
    one_row: tuple[str, ...] = ()
    programs_per_sm: int = 0
    block_cols: int = 0
    block_size: int = 1024
    num_warps: int = 4
    tuning: tuple[dict[str, Any], ...] = ()
    tunable: bool = False

    def settings(self, stage: str) -> str:
        """Extra arguments of `row_settings` and `persistent_settings` in a wrapper."""
        text = ", max_rows=1" if stage in self.one_row else ""
        return text + (f", block_cols={self.block_cols}" if self.block_cols else "")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Options":
        known: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**known)
