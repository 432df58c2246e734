"""`run_tuned.py ROOT FILE.json`: calls the ops of ROOT in Triton's interpreter by their default settings and by those in
a table; writes what their kernels were launched with, and how far the results are apart."""

import importlib
import json
import sys

from pathlib import Path

import torch

from liger_dev.grading import interpreter

# Each kernel's float inputs and what follows them, and a setting for each of its knobs that is not the default there.
SHAPES = {
    "rms_norm": [(5, 40), (40,)],
    "swiglu": [(5, 40), (5, 40)],
    "softmax": [(5, 40)],
    "cross_entropy": [(5, 40)],
}
OTHERS = {"rms_norm": (1e-6, 0.0), "cross_entropy": (torch.tensor([3, 39, -100, 0, 7]), -100)}
CHOSEN = {
    "BLOCK_ROWS": 2,
    "BLOCK_COLS": 16,
    "block_size": 64,
    "NUM_STAGES": 2,
    "num_warps": 2,
    "per_sm": 3,
}


def launches(op, kernels):
    """Each kernel of the op notes its constants when it is launched."""
    noted = {}
    for kernel in kernels:
        original = getattr(op, kernel)

        class Noting:
            def __init__(self, kernel, original):
                self.kernel, self.original = kernel, original

            def __getitem__(self, grid):
                def run(*args, **kwargs):
                    noted[self.kernel] = {"grid": grid[0], **{k: v for k, v in kwargs.items() if k.isupper()}}
                    noted[self.kernel]["num_warps"] = kwargs["num_warps"]
                    return self.original[grid](*args, **kwargs)

                return run

        setattr(op, kernel, Noting(kernel, original))
    return noted


def results(function, name):
    torch.manual_seed(0)
    inputs = [torch.randn(shape).requires_grad_() for shape in SHAPES[name]]
    y = function.apply(*inputs, *OTHERS.get(name, ()))
    return [y.detach(), *torch.autograd.grad(y, inputs, torch.ones_like(y))]


def main(root, out):
    sys.path.insert(0, str(root))
    interpreter.install()
    told = {}
    for name, tunable in json.loads((root / "tunable.json").read_text()).items():
        op = importlib.import_module(f"kernels.ops.{name}")
        function = next(value for key, value in vars(op).items() if key.startswith("Liger"))
        noted = launches(op, tunable)
        tables = {kernel: f"{kernel.strip('_').removesuffix('_kernel').upper()}_TUNED" for kernel in tunable}
        vars(op).update({table: () for table in tables.values()})
        usual, before = results(function, name), {kernel: dict(seen) for kernel, seen in noted.items()}
        for kernel, one in tunable.items():
            settings = tuple(CHOSEN[knob] for knob in one["knobs"])
            rows = [("cpu", torch.bfloat16, 8, 1024, ()), ("sm_90", torch.float32, 8, 1024, ())]
            rows += [("cpu", torch.float32, 0, 8, ()), ("cpu", torch.float32, 8, 1024, settings)]
            setattr(op, tables[kernel], tuple(rows))
        chosen = results(function, name)
        apart = max(float((a - b).abs().max()) for a, b in zip(usual, chosen, strict=True))
        told[name] = {"before": before, "after": noted, "apart": apart}
    out.write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
