"""What a candidate gave, what eager PyTorch gives and the truth in; faults and margins out. Exact checks come first."""

import math

from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from liger_dev.grading.verdict import Fault
from liger_dev.grading.verdict import Margin
from liger_dev.grading.wire import storage_bytes

EAGER_FACTOR = 4.0
# Units in the last place of the largest true value that are forgiven where eager is exact. In 16 bits eager's own
# rounding is half of one, so that one is room enough; in float32 the order of a sum costs a few.
FLOOR_ULPS = {torch.float32: 4.0, torch.float64: 4.0, torch.bfloat16: 1.0, torch.float16: 1.0}
# GPUs may flush what is smaller to zero.
SMALLEST_NORMAL = torch.finfo(torch.float32).tiny

Tensors = Mapping[str, torch.Tensor | None]


@dataclass(frozen=True)
class Given:
    """One case as it came back: the candidate's record and tensors, the reference's tensors and noise."""

    id: str
    case: Mapping[str, Any]
    record: Mapping[str, Any]
    actual: Tensors
    expected: Tensors
    noise: Mapping[str, float]


def compare(given: Given) -> tuple[list[Fault], list[Margin]]:
    """All that is wrong with a case, and the margins of its tensors that could be compared."""
    faults: list[Fault] = []
    margins: list[Margin] = []
    names = [name.removeprefix("eager ") for name in given.expected if name.startswith("eager ")]
    outputs = [name for name in names if name.startswith("output ")]
    returned = [name for name in given.actual if name.startswith("output ")]
    if len(outputs) != len(returned):
        return [Fault("another number of outputs", given.id, f"{len(returned)} instead of {len(outputs)}")], []
    for name in names if given.case["gradients"] else outputs:
        problems = list(_exact(given, name))
        if not problems:
            problem, margin = _close(given, name)
            problems += [problem] if problem else []
            margins += [margin] if margin else []
        faults += problems
    faults += _repeats(given)
    faults += _accumulated(given)
    return faults, margins


def _kind(name: str, wrong: str) -> str:
    return f"{wrong} of a gradient" if name.startswith("gradient") else f"{wrong} of an output"


def _exact(given: Given, name: str) -> Iterator[Fault]:
    """Presence, type, shape, dtype, strides, and the bytes of what are no floating numbers."""
    actual, eager = given.actual.get(name), given.expected[f"eager {name}"]
    if eager is None:
        if actual is not None and bool(actual.any()):
            yield Fault("a gradient where there is none", given.id, f"{name} must be zero")
        return
    if actual is None:
        yield Fault(
            "missing gradient" if name.startswith("gradient") else "missing output", given.id, f"{name} is None"
        )
        return
    if name.startswith("output"):
        index = int(name.rpartition(" ")[2])
        if not given.record.get("exact", [False] * (index + 1))[index]:
            kind = str(given.record.get("types", ["?"] * (index + 1))[index])
            yield Fault("another type", given.id, f"{name} is a {kind[:60]} and no torch.Tensor")
    if actual.shape != eager.shape:
        yield Fault(
            _kind(name, "another shape"), given.id, f"{name} has {tuple(actual.shape)}, eager {tuple(eager.shape)}"
        )
    elif actual.dtype != eager.dtype:
        yield Fault(_kind(name, "another dtype"), given.id, f"{name} is {actual.dtype}, eager's {eager.dtype}")
    elif not _same_strides(actual, eager.stride()) and not _same_strides(actual, _contiguous(eager)):
        text = f"{name} has strides {actual.stride()}, eager {eager.stride()}"
        yield Fault(_kind(name, "another stride"), given.id, text)
    elif not eager.is_floating_point() and not torch.equal(actual, eager):
        yield Fault("wrong values", given.id, f"{name} differs in {int((actual != eager).sum())} elements")


def _contiguous(x: torch.Tensor) -> tuple[int, ...]:
    return torch.empty(x.shape, device="meta").stride()


def _same_strides(x: torch.Tensor, wanted: tuple[int, ...]) -> bool:
    return x.numel() == 0 or all(a == b for a, b, size in zip(x.stride(), wanted, x.shape) if size > 1)


def _close(given: Given, name: str) -> tuple[Fault | None, Margin | None]:
    actual, eager, true = given.actual.get(name), given.expected[f"eager {name}"], given.expected[f"true {name}"]
    if actual is None or eager is None or true is None or not eager.is_floating_point() or not eager.numel():
        return None, None
    assert actual.is_floating_point(), "its dtype is eager's"
    nearest = true.to(eager.dtype)  # infinite where the truth is beyond what the dtype holds
    finite = torch.isfinite(nearest) & torch.isfinite(eager)
    if (fault := _positions(given.id, name, actual, eager, nearest, finite)) is not None:
        return fault, None
    if name.startswith("gradient"):
        # What a mean divides by its size last was that much larger before: near the largest number it may overflow.
        largest = torch.finfo(torch.float32).max
        finite &= torch.isfinite(actual) | (true.abs() * EAGER_FACTOR * true.numel() < largest)
    if not finite.any():
        return None, None
    errors, own = _error(actual, true, finite), _error(eager, true, finite).max().item()
    eager_error = max(own, given.noise.get(name, 0.0))
    scale = torch.where(finite, true, 0).abs().max().item()
    floor = FLOOR_ULPS[eager.dtype] * torch.finfo(eager.dtype).eps * scale
    bound = max(EAGER_FACTOR * eager_error, floor, SMALLEST_NORMAL)
    worst = int(errors.nan_to_num(nan=math.inf, posinf=math.inf).flatten().argmax())
    error = errors.flatten()[worst].item()
    margin = Margin(name, str(eager.dtype).removeprefix("torch."), given.id, error, eager_error, bound, scale)
    if error <= bound:
        return None, margin
    text = (
        f"{name} is off by {error:.3g} at element {worst}: {actual.flatten()[worst].item():.6g} instead of "
        f"{true.flatten()[worst].item():.6g} (bound {bound:.3g}, eager is off by {eager_error:.3g}){_looks(actual, true)}"
    )
    return Fault("wrong gradient" if name.startswith("gradient") else "wrong values", given.id, text), margin


def _error(x: torch.Tensor, true: torch.Tensor, finite: torch.Tensor) -> torch.Tensor:
    return torch.where(finite, x.double() - true, 0).abs()


def _looks(actual: torch.Tensor, true: torch.Tensor) -> str:
    """What a wrong tensor looks like, where that can be told."""
    x = actual.double()
    if not bool(torch.isfinite(x).any()):
        return "; nothing in it is a finite number: no kernel wrote it"
    if bool((x == 0).all()):
        return "; all of it is zero"
    if x.numel() > 1 and bool((x == x.flatten()[0]).all()):
        return "; all of it is one number"
    ratio = (x * true).sum() / (true * true).sum()
    if bool(torch.isfinite(ratio)) and bool(((x - ratio * true).abs() <= 1e-2 * true.abs().max()).all()):
        return f"; it is the true one times {ratio.item():.4g}"
    return ""


def _positions(
    id: str, name: str, actual: torch.Tensor, eager: torch.Tensor, nearest: torch.Tensor, finite: torch.Tensor
) -> Fault | None:
    """Infinities and NaNs stand where eager's or the true ones do, and nowhere else. In a gradient each may be the one or
    the other, since what overflows on the way depends on how its formula is written: any will do where both are none."""
    own, others = _classes(actual), (_classes(eager), _classes(nearest))
    same = any(torch.equal(own[~finite], wanted[~finite]) for wanted in others)
    if name.startswith("gradient") and not same:
        either = (own == others[0]) | (own == others[1]) | (own != 0) & (others[0] != 0) & (others[1] != 0)
        same = bool(either[~finite].all())
    if not same:
        return Fault("wrong values", id, f"{name} has infinities or NaNs other than eager's")
    extra = int((~torch.isfinite(actual) & finite).sum())
    if extra and not name.startswith("gradient"):
        where = "; all of it: no kernel wrote it" if extra == actual.numel() else ""
        return Fault("wrong values", id, f"{name} has {extra} infinities or NaNs where there is a number{where}")
    return None


def _classes(x: torch.Tensor) -> torch.Tensor:
    """0 for a number, 1 and -1 for infinities, 2 for NaN."""
    signs = torch.where(torch.isinf(x), torch.sign(x), 0).to(torch.int8)
    return torch.where(torch.isnan(x), 2, signs).to(torch.int8)


def _repeats(given: Given) -> Iterator[Fault]:
    """Equal bytes after a second backward, after backward, and in a second call."""
    kinds = {
        "second backward: ": "another answer in a second backward",
        "after backward: ": "outputs written to in backward",
        "repeat: ": "another answer in a second call",
    }
    for prefix, kind in kinds.items():
        for name, x in given.actual.items():
            if name.startswith(prefix) and not _same(x, given.actual.get(name.removeprefix(prefix))):
                yield Fault(kind, given.id, name.removeprefix(prefix))


def _accumulated(given: Given) -> Iterator[Fault]:
    for name, x in given.actual.items():
        single = given.actual.get(name.removeprefix("accumulated "))
        if name.startswith("accumulated ") and not _same(x, None if single is None else single + single):
            yield Fault(
                "gradients do not accumulate", given.id, f"twice {name.removeprefix('accumulated ')} is another tensor"
            )


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    alike = one.shape == other.shape and one.dtype == other.dtype
    return alike and storage_bytes(one.contiguous(), False) == storage_bytes(other.contiguous(), False)
