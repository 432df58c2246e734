"""`run_ops.py FOLDER`: runs each op file of FOLDER/ops in Triton's interpreter on FOLDER/inputs.pt, writes outputs.pt."""

import importlib.util
import sys

from pathlib import Path

import torch

from liger_dev.grading import interpreter


def run(path, function_name, inputs, upstream):
    """The output and the gradients of its float inputs; the error's text if it fails."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    try:
        spec.loader.exec_module(module)
        y = getattr(module, function_name).apply(*leaves)
        y.backward(upstream)
    except Exception as error:  # noqa: BLE001 - one op's failure must not hide the others'
        return f"{type(error).__name__}: {error}"
    gradients = [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves if x.requires_grad]
    return [y.detach(), *gradients]


if __name__ == "__main__":
    interpreter.install()
    folder = Path(sys.argv[1])
    given = torch.load(folder / "inputs.pt")
    results = {key: run(folder / "ops" / f"op_{key}.py", *arguments) for key, arguments in given.items()}
    torch.save(results, folder / "outputs.pt")
