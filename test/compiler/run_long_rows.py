"""`run_long_rows.py FOLDER [SCALAR...]`: runs each op file of FOLDER in Triton's interpreter on FOLDER/given.pt, in float32 and
bfloat16, with whole rows and with rows that are taken block by block; writes outputs and gradients to FOLDER/found.pt."""

import importlib.util
import sys

from pathlib import Path

import torch

from liger_dev.grading import interpreter

# Rows a program and columns a block: the rows of the tests take several blocks.
BLOCKS = (2, 8, 1)


def imported(path, long_rows):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if long_rows:
        module.LONG_ROW = module.WIDE_ROW = BLOCKS[1]
        module.loop_settings = lambda n_cols, **kwargs: BLOCKS
        module.wide_settings = lambda n_cols: (1, *BLOCKS[1:])
    return module


def results(function, inputs, upstreams, scalars=()):
    leaves = [x.clone().requires_grad_() for x in inputs]
    ys = function(*leaves, *scalars)
    ys = ys if isinstance(ys, tuple) else (ys,)
    torch.autograd.backward(ys, [dy.to(y.dtype) for dy, y in zip(upstreams, ys, strict=True)])
    return [*(y.detach() for y in ys), *(x.grad for x in leaves)]


if __name__ == "__main__":
    interpreter.install()
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    found = {}
    for name, (function_name, inputs, upstreams) in torch.load(folder / "given.pt").items():
        for long_rows in (False, True):
            function = getattr(imported(folder / f"{name}.py", long_rows), function_name).apply
            for dtype in (torch.float32, torch.bfloat16):
                given = [x.to(dtype) for x in inputs]
                found[name, dtype, long_rows] = results(function, given, upstreams, map(float, sys.argv[2:]))
    torch.save(found, folder / "found.pt")
