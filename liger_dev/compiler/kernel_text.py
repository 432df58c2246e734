"""The record of an emitted kernel: what it takes and its lines."""

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelText:
    """A kernel as text. `pointers` are its tensor arguments in order, `sizes` the axes whose sizes it takes beside
    rows and columns, `scalars` the reference's scalar arguments, `flags` its constexprs, `statics` the arguments of the
    reference that it branches on, `absent` the pointers that one setting of these has no tensor for; `reloads`: it
    takes RELOAD too; `late`: it takes LATE; `lean`: it does, and keeps no more than one tensor's row until then: how
    many tensors rows share; `holds`: how many tensors' rows it keeps in registers, or reads twice where it is looped;
    `at_once`: how many tensors a looped one reads at once; `online`: it keeps a maximum and a sum of exponentials;
    `again`: it reads some of these again after its reductions; `light`: it does, block by block, and has registers left
    for long ones; `unfused`: it rounds each product; `wide`: it is compiled for one number of columns."""

    name: str
    pointers: tuple[str, ...]
    sizes: tuple[str, ...]
    scalars: tuple[str, ...]
    flags: tuple[str, ...]
    lines: tuple[str, ...]
    statics: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    reloads: bool = False
    at_once: int = 0
    online: bool = False
    late: bool = False
    lean: int = 0
    holds: int = 0
    again: bool = False
    light: bool = False
    unfused: bool = False
    wide: bool = False

    @property
    def flat(self) -> bool:
        """Whether it takes elements wherever rows begin."""
        return any("BLOCK_SIZE" in line for line in self.lines)

    @property
    def blocks(self) -> bool:
        """Whether it takes blocks of rows; else one program computes numbers."""
        return any("BLOCK_ROWS" in line for line in self.lines)
