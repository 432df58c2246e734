"""What ncu runs: a benchmark script's providers, one full pass each between two marks, at one x.

ncu ... python -m liger_dev.bench.profiled SCRIPT --x 4096 --providers liger torch
"""

import argparse
import runpy
import sys

from collections.abc import Sequence
from dataclasses import replace

import torch

from liger_dev.bench.passes import eager_pass
from liger_dev.bench.spec import BenchmarkSpec
from liger_dev.bench.spec import make_inputs
from liger_dev.bench.sweeps import size_sweep

WARM_UP = 3


def main(argv: Sequence[str]) -> None:
    """Warms each provider up outside of what is profiled, then marks its turn with a kernel of a known name."""
    parser = argparse.ArgumentParser(description="Run a benchmark's providers under ncu.")
    parser.add_argument("script")
    parser.add_argument("--x", type=int)
    parser.add_argument("--providers", nargs="+", default=("liger", "torch"))
    given = parser.parse_args(argv)
    spec: BenchmarkSpec = runpy.run_path(given.script, run_name="profiled")["SPEC"]
    x = given.x or spec.x_values[len(spec.x_values) // 2]
    sizes = size_sweep(spec.x_name, spec.x_label, (x,), spec.config).points[x]
    spec = replace(spec, providers={name: spec.providers[name] for name in given.providers})
    for name, function in spec.providers.items():
        assert function is not None, f"{name} is not installed"
        one = eager_pass(function, make_inputs(spec, sizes, str(spec.config.get("dtype", "bfloat16")), "cuda"), "full")
        for _ in range(WARM_UP):
            one.prepare()
            one.call()
        one.prepare()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        torch.cuda._sleep(1)  # type: ignore[no-untyped-call]
        one.call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(sys.argv[1:])
