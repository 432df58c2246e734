"""Kernels that do their work only while nobody looks, and what tells them from honest ones."""

import time

import pytest
import torch

from liger_dev.bench import honesty
from liger_dev.bench.honesty import check_outputs
from liger_dev.bench.honesty import check_streams
from liger_dev.bench.honesty import stream_times
from liger_dev.errors import KernelFailed


def reference(x, w):
    return 2 * x * w


def inputs(device="cpu", rows=64):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=generator).to(device) for shape in ((rows, 512), (512,)))


class RemembersPointers:
    """The answer of the first call with tensors at these addresses."""

    def __init__(self):
        self.known = {}

    def __call__(self, x, w):
        return self.known.setdefault((x.data_ptr(), w.data_ptr()), reference(x, w))


class SkipsWhenWarm:
    """Nothing but the output's memory after a few calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x, w):
        self.calls += 1
        return reference(x, w) if self.calls <= 5 else torch.full_like(x, 3.0)


class OneBehind:
    """The answer to the call before: a batch of calls answered late."""

    def __init__(self):
        self.last = None

    def __call__(self, x, w):
        self.last, answer = reference(x, w), self.last
        return self.last if answer is None else answer


def not_a_number(x, w):
    return x * float("nan")


@pytest.mark.parametrize("kernel", [RemembersPointers(), SkipsWhenWarm(), OneBehind(), not_a_number])
def test_what_is_not_computed_at_every_call_is_refused(kernel):
    with pytest.raises(KernelFailed, match="after 30 calls"):
        check_outputs(kernel, reference, inputs(), "a test")


def test_an_honest_kernel_is_not_refused():
    check_outputs(lambda x, w: (x.bfloat16() * w.bfloat16() * 2).float(), reference, inputs(), "a test")


def test_time_on_other_streams_is_told_from_time_on_this_one(monkeypatch):
    now, busy = [0.0], {"stream": 0.0, "device": 0.0}

    def work():
        busy.update(stream=now[0] + 2e-3, device=now[0] + 30e-3)

    def wait_for(what):
        now[0] = max(now[0], busy[what])

    monkeypatch.setattr(honesty, "_clock", lambda: now[0])
    times = stream_times(work, lambda: wait_for("stream"), lambda: wait_for("device"))
    assert times == pytest.approx((2, 28))


def test_a_process_that_once_waited_for_its_core_is_no_kernel_that_hides_work(monkeypatch):
    class Stream:
        synchronize = None

    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    for late, refused in (([5.0, 0.01, 0.01, 7.0, 0.01], False), ([5.0, 0.01, 5.0, 7.0, 0.01], True)):
        monkeypatch.setattr(honesty, "stream_times", lambda *given, late=late: (1.0, late.pop()))
        if refused:
            with pytest.raises(KernelFailed, match=r"5.000 ms of its work ran on after the 1.000 ms"):
                check_streams(reference, inputs(), "a test")
        else:
            check_streams(reference, inputs(), "a test")


@pytest.mark.gpu
def test_work_on_a_side_stream_is_refused():
    side = torch.cuda.Stream()

    def kernel(x, w):
        with torch.cuda.stream(side):
            return reference(x, w)

    values = inputs("cuda", rows=2**18)
    with pytest.raises(KernelFailed, match="of the timed stream"):
        check_streams(kernel, values, "a test")
    check_streams(reference, values, "a test")


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [RemembersPointers(), SkipsWhenWarm(), OneBehind()])
def test_what_is_not_computed_at_every_call_is_refused_on_a_device(kernel):
    with pytest.raises(KernelFailed, match="after 30 calls"):
        check_outputs(kernel, reference, inputs("cuda"), "a test")


@pytest.mark.gpu
def test_patched_timers_do_not_hide_a_side_stream(monkeypatch):
    monkeypatch.setattr(torch.cuda.Event, "elapsed_time", lambda start, end: 1e-3)
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    assert honesty._clock is not time.perf_counter
    test_work_on_a_side_stream_is_refused()
