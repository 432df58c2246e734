"""The name of a number of each row in, the statements that search it out."""


def kth_largest(name: str, row: str, k: int) -> list[str]:
    """The largest element is taken away k - 1 times; equal ones one by one. `row` is -inf in its padded lanes."""
    if k == 1:
        return [f"{name} = tl.max({row}, axis=1, keep_dims=True)"]
    largest = "tl.argmax(remaining, axis=1, keep_dims=True)"
    return [
        f"remaining = {row}",
        f"for _ in range({k - 1}):",
        f'    remaining = tl.where(cols == {largest}, float("-inf"), remaining)',
        f"{name} = tl.max(remaining, axis=1, keep_dims=True)",
    ]


def simplex_threshold(name: str, row: str, total: float) -> list[str]:
    """The threshold rises from below until what it leaves out no longer changes; each round solves for what is kept."""
    candidates = row if row.isidentifier() else "candidates"
    return [
        *([] if row == candidates else [f"candidates = {row}"]),
        f"# {name} rises from below until the elements above it exceed it by {total:g} in all.",
        f"{name} = tl.max({candidates}, axis=1, keep_dims=True) - {total!r}",
        "n_rising = 1",
        "while n_rising > 0:",
        f"    above = {candidates} > {name}",
        "    n_above = tl.sum(above.to(tl.float32), axis=1, keep_dims=True)",
        f"    raised = (tl.sum(tl.where(above, {candidates}, 0.0), axis=1, keep_dims=True) - {total!r}) / n_above",
        f"    n_rising = tl.sum((raised > {name}).to(tl.int32))",
        f"    {name} = tl.where(raised > {name}, raised, {name})",
    ]
