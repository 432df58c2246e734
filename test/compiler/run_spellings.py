"""`run_spellings.py interpret|compile FOLDER`: runs or compiles each kernel of FOLDER/spelled.py, writes FOLDER/MODE.json."""

import json
import os
import sys
import warnings

from pathlib import Path

import torch
import triton

BLOCK = 256


def interpret(kernel, columns):
    tensors = [torch.tensor(column, dtype=torch.float32) for column in columns]
    y = torch.full_like(tensors[0], 12345.0)
    kernel[(1,)](*tensors, y, len(y), BLOCK=BLOCK)
    return y.tolist()


def compile_for_sm_90(kernel, columns):
    """What the compiler says against the kernel; nothing if it compiles."""
    names = [f"x{i}_ptr" for i in range(len(columns))]
    signature = {**dict.fromkeys([*names, "y_ptr"], "*fp32"), "n": "i32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(kernel, signature, {"BLOCK": BLOCK})
    try:
        triton.compile(source, target=triton.backends.compiler.GPUTarget("cuda", 90, 32))
    except (triton.CompilationError, RuntimeError) as error:
        return str(error) or type(error).__name__
    return ""


if __name__ == "__main__":
    mode, folder = sys.argv[1], Path(sys.argv[2])
    if os.environ.get("TRITON_INTERPRET"):
        from liger_dev.grading import interpreter

        interpreter.install()
        warnings.simplefilter("ignore")
    import spelled

    run = {"interpret": interpret, "compile": compile_for_sm_90}[mode]
    inputs = json.loads((folder / "inputs.json").read_text())
    results = {name: run(getattr(spelled, f"kernel_{name}"), columns) for name, columns in inputs.items()}
    (folder / f"{mode}.json").write_text(json.dumps(results))
