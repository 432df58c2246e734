"""`run_scripted.py REQUEST.json OUT.jsonl`: the tuner with a device of the script's own: kernels run in Triton's interpreter,
results and lookups are real, and so is compilation; times follow from the settings.

Of the kernel that SPOILS names, the capture with twice the default's warps leaves the process unfit."""

import importlib
import os
import sys

from contextlib import nullcontext
from pathlib import Path

import torch


def main(asked, out):
    # Not above: processes that compile import this file too, and must not take Triton for an interpreter.
    from liger_dev.bench import tuner
    from liger_dev.grading import interpreter

    interpreter.install()
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_name = lambda: "Scripted GPU"
    tuner.device_lock = nullcontext
    tuner.free_unused = lambda: None
    tuner.make_inputs = lambda spec, sizes, dtype, device: spec.make_inputs(
        **sizes, dtype=getattr(torch, dtype), device="cpu"
    )
    importlib.import_module("kernels.ops.utils").architecture = lambda device: "sm_90"
    op = importlib.import_module("kernels.ops.rms_norm")

    def graph_pass(function, inputs, mode):
        ((kernel, settings),) = op.tuned.tried.items()
        default = op.tuned.seen[kernel].default
        if kernel == os.environ.get("SPOILS") and settings == {**default, "num_warps": 2 * default["num_warps"]}:
            tuner.is_fit = lambda: False
            raise RuntimeError("operation not permitted when stream is capturing")
        assert mode == ("forward" if "forward" in kernel else "backward")
        return settings

    def time_interleaved(passes, seed, budget_s):
        return {name: [settings["num_warps"] + 0.001 * i for i in range(20)] for name, settings in passes.items()}

    tuner.graph_pass, tuner.time_interleaved = graph_pass, time_interleaved
    return tuner.main(asked, out)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
