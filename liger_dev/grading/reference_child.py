"""`python -m liger_dev.grading.reference_child JOB OUT`: runs the user's reference on a job's cases, and writes what it gives.

A child of its own, since a reference is a user's code. It is asked twice: for shapes alone, on zeros, before the
candidate runs; for values only after the candidate and all it started have ended.
"""

import importlib.util
import inspect
import json
import sys
import warnings

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from liger_dev.grading import truth
from liger_dev.grading import wire


def main(job_path: Path, out: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    job = json.loads(job_path.read_text())
    torch.manual_seed(job["seed"])
    function = load(Path(job["file"]), job["entry"])
    for case in job["cases"]:
        _, inputs = wire.read(job_path.parent, case["file"], job["device"])
        answer = _shapes if job["do"] == "shapes" else _values
        record, tensors = answer(function, case, inputs)
        wire.write(out, case["file"], record, tensors)


def load(path: Path, entry: str) -> Callable[..., Any]:
    """The reference's function, called by keyword with what it takes."""
    spec = importlib.util.spec_from_file_location("liger_dev_reference", path)
    assert spec is not None and spec.loader is not None, f"{path} is no Python file"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, entry)
    names = set(inspect.signature(function).parameters)

    def call(**arguments: Any) -> Any:
        given = {name: value for name, value in arguments.items() if name in names}
        try:
            return function(**given)
        except RuntimeError:
            pass
        # `x.view(-1, n)`, or a view of pairs as complex numbers, asks for strides and offsets that a kernel does not need.
        copies = {
            n: x.clone(memory_format=torch.contiguous_format) if isinstance(x, torch.Tensor) else x
            for n, x in given.items()
        }
        return function(**copies)

    return call


def _shapes(
    function: Callable[..., Any], case: dict[str, Any], inputs: truth.Tensors
) -> tuple[dict[str, Any], truth.Tensors]:
    """Shapes and dtypes of the outputs on zeros, or why the reference refuses such inputs. Indices are as they are: at
    another rank they may lie outside of what they count in."""
    zeros = {n: x if x is None or not x.is_floating_point() else torch.zeros_like(x) for n, x in inputs.items()}
    if case["alias"]:
        zeros[case["alias"][0]] = zeros[case["alias"][1]]
    try:
        with torch.no_grad():
            outputs = truth.as_tuple(function(**zeros, **case["scalars"]))
    except (MemoryError, torch.OutOfMemoryError):  # says nothing of the case
        raise
    except Exception as error:  # a user's function may raise anything; that case is left out
        return {"refused": f"{type(error).__name__}: {str(error)[:300]}", "outputs": []}, {}
    described = [{"shape": list(y.shape), "dtype": str(y.dtype).removeprefix("torch.")} for y in outputs]
    return {"refused": "", "outputs": described}, {}


def _values(
    function: Callable[..., Any], case: dict[str, Any], given: truth.Tensors
) -> tuple[dict[str, Any], truth.Tensors]:
    """Eager and true outcomes, and the error that noise of float32 makes."""
    inputs, upstream = split(given)
    wanted, alias = tuple(case["wanted"]), case["alias"]
    eager = truth.outcome(function, inputs, case["scalars"], upstream, wanted, alias)
    doubled = {name: truth.double(x) for name, x in inputs.items()}, {i: truth.double(dy) for i, dy in upstream.items()}

    def true() -> truth.Outcome:
        wide = truth.in_float64(function)
        return truth.outcome(wide, doubled[0], case["scalars"], doubled[1], wanted, alias)

    found = true()
    tensors = {f"eager {name}": x for name, x in truth.flat(eager).items()}
    tensors |= {f"true {name}": x for name, x in truth.flat(found).items()}
    return {"noise": truth.noise(true, found)}, tensors


def split(given: truth.Tensors) -> tuple[truth.Tensors, truth.Tensors]:
    """A case's inputs, and its upstream gradients by the output's position."""
    upstream = {name.removeprefix("upstream "): x for name, x in given.items() if name.startswith("upstream ")}
    return {name: x for name, x in given.items() if not name.startswith("upstream ")}, upstream


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
