"""`python -m liger_dev.child REQUEST.json REPLY.json`: what needs torch or runs the user's code, away from the tool itself."""

import json
import os
import sys
import tempfile
import warnings

from pathlib import Path
from typing import Any

import torch

from liger_dev.errors import LigerDevError
from liger_dev.records import Reference
from liger_dev.records import Source


def main(request_path: Path, reply_path: Path) -> None:
    """Answers one request. A user's error is an answer too; any other exception ends the child with a traceback."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    request = json.loads(request_path.read_text(encoding="utf-8"))
    try:
        reply = answer(request)
    except LigerDevError as error:
        kind = type(error).__name__
        reply = {"error": {"kind": kind, "what": error.what, "where": error.where, "todo": error.todo}}
    reply_path.write_text(json.dumps(reply), encoding="utf-8")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """`load`: a reference. `analyze`: a reference and its profile. `compile`: a profile and what the op template needs.
    `cover`: whether a source compiles, and runs right.

    `facts`: an uncompiled reference's outputs, once its gradients' formulas hold. `compare`: whether two references agree.
    """
    match request["do"]:
        case "load":
            return _load(request)
        case "analyze":
            loaded = _load(request)
            compiled = _compile(loaded["reference"], {})
            notes = [*loaded["notes"], *compiled["notes"]]
            return {**loaded, "reference": compiled["reference"], "profile": compiled["profile"], "notes": notes}
        case "compile":
            return _compile(request["reference"], request["options"])
        case "cover":
            return _cover(request)
        case "facts":
            return _facts(request["reference"], request["formulas"])
        case "compare":
            return _compare(request["first"], request["second"])
    raise AssertionError(f"unknown request {request['do']}")


def _load(request: dict[str, Any]) -> dict[str, Any]:
    from liger_dev.loading import is_printed
    from liger_dev.loading import load

    source = source_from_json(request["source"])
    with tempfile.TemporaryDirectory() as folder:
        reference = load(request["name"], source, Path(folder).resolve())
    return {"reference": reference.to_json(), "printed": is_printed(source, reference), "notes": []}


def _compile(reference: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    from liger_dev.compiler import compile_op

    compiled = compile_op(Reference.from_json(reference), options)
    return {
        "profile": compiled.profile,
        "op": compiled.op,
        "reference": compiled.reference.to_json(),
        "notes": compiled.notes,
    }


def _facts(reference: dict[str, Any], formulas: dict[str, str]) -> dict[str, Any]:
    from liger_dev.loading.facts import output_facts

    with tempfile.TemporaryDirectory() as folder:
        return {"outputs": output_facts(Reference.from_json(reference), formulas, Path(folder).resolve())}


def _compare(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    from liger_dev.loading.facts import compare_references

    with tempfile.TemporaryDirectory() as folder:
        compare_references(Reference.from_json(first), Reference.from_json(second), Path(folder).resolve())
    return {}


def _cover(request: dict[str, Any]) -> dict[str, Any]:
    """The tier, and what the emitted op gets wrong if it is to be run: None if it is not, "" for nothing."""
    # Triton reads this when it is imported first.
    os.environ["TRITON_INTERPRET"] = "1"
    loaded = _load(request)
    compiled = _compile(loaded["reference"], {})
    said = None
    if request["run"]:
        from liger_dev.grading.trial import disagreement

        profile = {"closest_existing_kernel": "none", **compiled["profile"]}
        with tempfile.TemporaryDirectory() as folder:
            reference = Reference.from_json(compiled["reference"])
            said = disagreement(reference, profile, compiled["op"], Path(folder).resolve())
    return {"tier": compiled["profile"]["tier"], "disagreement": said}


def source_from_json(data: dict[str, Any]) -> Source:
    """A Source as `dataclasses.asdict` and JSON leave it."""
    return Source(**{**data, "shapes": {name: tuple(shape) for name, shape in data["shapes"].items()}})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
