"""Names that emitted code has for itself: a reference's locals make way for them, its arguments are refused by name."""

from collections.abc import Iterable

from liger_dev.errors import Unsupported
from liger_dev.records import Reference

WRAPPERS = frozenset(
    "ctx torch triton tl n_rows n_cols n_elements n_programs n_pieces num_warps per_sm BLOCK_SIZE BLOCK_ROWS BLOCK_COLS "
    "NUM_STAGES RELOAD LATE".split()
)

KERNELS = frozenset(
    "rows cols mask row_mask col_mask offsets block group member number n_blocks start stretch n_rows n_cols n_elements "
    "tl".split()
)


def local_name(name: str, inputs: Iterable[str]) -> str:
    """What a local of the reference is called in kernels and wrappers, where `dx` is the gradient of x."""
    return f"{name}_value" if name in WRAPPERS or name in {f"d{other}" for other in inputs} else name


def refuse_taken(reference: Reference) -> None:
    """Raises Unsupported for an argument whose name the emitted code needs."""
    tensors = [tensor.name for tensor in reference.tensors]
    made = {form.format(n): n for n in tensors for form in ("d{}", "d{}_partial", "d{}_rows", "needs_d{}")}
    for name in (*tensors, *(scalar.name for scalar in reference.scalars)):
        if name in WRAPPERS or name in KERNELS and name not in tensors:
            reason = "kernels and their wrappers use it"
        elif name in made:
            reason = f"it is that of the gradient of {made[name]}"
        else:
            continue
        raise Unsupported(f"an argument can't have the name {name}: {reason}", reference.name, "rename the argument")
