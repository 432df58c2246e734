"""Passes of several providers in, milliseconds a sample out: call time of the Python call, device time of its replay."""

import random
import time

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import torch

from liger_dev.bench.passes import Pass
from liger_dev.bench.passes import Provider
from liger_dev.bench.passes import differentiable
from liger_dev.bench.passes import freshen
from liger_dev.bench.passes import gradient_leaves
from liger_dev.bench.passes import random_gradients

MIN_SAMPLES = 20
# A call's time is the host's as well, whose noise takes more samples to average out.
MAX_SAMPLES = {"device_time": 100, "speed": 400}
BUDGET_S = 1.5
WARM_UP_ROUNDS = 3
FLUSH_BYTES = 256 * 2**20


def time_interleaved(
    passes: Mapping[str, Pass], seed: int = 0, budget_s: float = BUDGET_S, at_most: int = MAX_SAMPLES["device_time"]
) -> dict[str, list[float]]:
    """Milliseconds on the device between a pass's start and its end, at least 20 samples a provider.

    More are taken, up to `at_most`, while less than `budget_s` seconds a provider have passed.

    Providers take turns in random order, so that a drift of clocks or temperature meets all of them. Before each
    sample the device is idle and its L2 cache overwritten. The overwriting runs while Python launches the pass, which
    hides some tens of microseconds of launch cost, as in Triton's `do_bench`; what exceeds them is in the call time.
    It writes rather than reads so that the cache is left dirty, as the pass itself leaves it: a pass pays for as many
    late writes as it leaves unpaid, and none seems to exceed the memory's bandwidth.
    """
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    samplers = {name: lambda one=one: _sample(one, flush) for name, one in passes.items()}
    interleave(samplers, random.Random(seed), WARM_UP_ROUNDS, WARM_UP_ROUNDS, 0.0)
    return interleave(samplers, random.Random(seed), MIN_SAMPLES, at_most, budget_s * len(passes))


def interleave(
    samplers: Mapping[str, Callable[[], float]], rng: random.Random, at_least: int, at_most: int, budget_s: float
) -> dict[str, list[float]]:
    """One sample of each in a random order, round by round: `at_least` rounds, then more while the budget lasts."""
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    end = time.monotonic() + budget_s
    for done in range(at_most):
        if done >= at_least and time.monotonic() >= end:
            break
        for name in rng.sample(list(samplers), k=len(samplers)):
            samples[name].append(samplers[name]())
    return samples


def _sample(one: Pass, flush: torch.Tensor) -> float:
    one.prepare()
    torch.cuda.synchronize()
    flush.zero_()
    return event_ms(one.call)


def event_ms(work: Callable[[], Any]) -> float:
    """Milliseconds between two events of the current stream, one before `work` and one after it."""
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def graph_pass(function: Provider, inputs: Sequence[Any], mode: str) -> Pass:
    """The pass as a CUDA graph, whose replay costs no Python: its time is the device's.

    Forward and backward are captured into one memory pool, one after the other, so that a backward's replay finds
    what its forward's replay saved.

    Raises:
        RuntimeError: the pass can't be captured, because it waits for the device or allocates outside the pool.
    """
    leaves = gradient_leaves(inputs)
    grad_outputs: list[torch.Tensor] = []
    if mode != "forward":
        grad_outputs = _warm_up(lambda: random_gradients(differentiable(function(*inputs))))

    def fresh() -> None:
        freshen(inputs, grad_outputs)

    def forward() -> Any:
        return function(*inputs)

    def backward(outputs: Any) -> Any:
        return torch.autograd.grad(differentiable(outputs), leaves, grad_outputs, allow_unused=True)

    def full() -> Any:
        return backward(forward())

    if mode == "forward":
        return Pass(fresh, _captured(forward)[0])
    for _ in range(WARM_UP_ROUNDS):
        _warm_up(full)
    if mode == "full":
        return Pass(fresh, _captured(full)[0])
    pool = torch.cuda.graph_pool_handle()
    replay_forward, outputs = _captured(forward, pool)
    replay_backward, _ = _captured(lambda: backward(outputs), pool, warm=False)

    def fresh_forward() -> None:
        fresh()
        replay_forward()

    return Pass(fresh_forward, replay_backward)


def _warm_up(work: Callable[[], Any]) -> Any:
    # Triton compiles, autograd and cuBLAS allocate at their first call on a stream: none of it can be captured.
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        result = work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    return result


def _captured(work: Callable[[], Any], pool: Any = None, warm: bool = True) -> tuple[Callable[[], None], Any]:
    """A function that replays `work`, and what `work` returned. The replay keeps alive what the graph
    reads and writes: capturing hands unused memory back to the device, and a freed input would be read all the same."""
    for _ in range(WARM_UP_ROUNDS if warm else 0):
        _warm_up(work)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = work()
    graph.replay()
    torch.cuda.synchronize()

    def replay(kept: Any = (work, result)) -> None:
        graph.replay()

    return replay, result
