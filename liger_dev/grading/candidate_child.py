"""`python -m liger_dev.grading.candidate_child JOB OUT`: calls a candidate on a job's inputs, and writes all that it gives.

It sees inputs and upstream gradients, never a reference, an expected value, a tolerance or a seed. All cases share one
process, which is safe as each is judged by values from elsewhere, and needed to find what is remembered from call to
call. Two candidates never share one. Of what it writes, the grader trusts the bytes of results (it compares them with
a truth made elsewhere); launches, ATen operations, types and messages are hints.
"""

import contextlib
import hashlib
import importlib.util
import inspect
import json
import sys
import warnings

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from liger_dev.grading import interpreter
from liger_dev.grading import wire
from liger_dev.grading.reference_child import split
from liger_dev.grading.trace import Trace
from liger_dev.grading.trace import install
from liger_dev.grading.trace import watched
from liger_dev.grading.truth import Tensors
from liger_dev.grading.truth import as_tuple

Call = Callable[..., tuple[torch.Tensor, ...]]


def main(job_path: Path, out: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    interpreter.install()
    # What `empty` gives is NaN: a result that no kernel wrote is no lucky remainder of another tensor.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    job = json.loads(job_path.read_text())
    trace = Trace()
    install(trace)
    sys.path.insert(0, job["root"])
    call = candidate(Path(job["file"]), job["function"], job["names"])
    previous: Tensors = {}
    for case in job["cases"]:
        _, given = wire.read(job_path.parent, case["file"], job["device"])
        inputs, upstream = split(given)
        if case["reuses"]:
            inputs = _into(previous, inputs)
        previous = inputs
        wire.write(out, case["file"], *answer(call, case, inputs, upstream, trace))
    told = {"device": _device(job["device"]), "operators": {n: _opcheck(*o) for n, o in trace.operators.items()}}
    (out / "end.json").write_text(json.dumps(told))


def _device(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "Triton's interpreter on the CPU"


def _opcheck(operator: Any, args: Any, kwargs: Any) -> str:
    """What `torch.library.opcheck` finds of an operator that the candidate has registered; empty if nothing."""
    try:
        torch.library.opcheck(operator, args, kwargs)
    except Exception as error:  # whatever the candidate's own functions raise, the checks hand on
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


def candidate(path: Path, name: str, names: tuple[list[str], list[str]]) -> Call:
    """The candidate's function, called by keyword; `names` are the tensors and the scalars in their order."""
    spec = importlib.util.spec_from_file_location("candidate_op", path)
    assert spec is not None and spec.loader is not None, f"{path} is no Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate_op"] = module
    spec.loader.exec_module(module)
    target: Any = getattr(module, name)
    is_function = isinstance(target, type) and issubclass(target, torch.autograd.Function)
    parameters = list(inspect.signature(target.forward if is_function else target).parameters.values())
    parameters = parameters[1:] if is_function else parameters
    # Arguments go by name where the tensors' names agree, else by position: tensors first, then scalars.
    known = {p.name for p in parameters}
    by_name = all(name in known for name in names[0])

    def call(**arguments: Any) -> tuple[torch.Tensor, ...]:
        if not by_name:
            values = [arguments[name] for name in (*names[0], *names[1]) if name in arguments]
        elif is_function:
            values = [arguments.get(p.name, None if p.default is p.empty else p.default) for p in parameters]
        else:
            return as_tuple(target(**{name: value for name, value in arguments.items() if name in known}))
        return as_tuple((target.apply if is_function else target)(*values))

    return call


def _into(storages: Tensors, values: Tensors) -> Tensors:
    """New values at the addresses of old ones, where shapes allow."""
    moved: Tensors = {}
    for name, x in values.items():
        old = storages.get(name)
        fits = x is not None and old is not None and old.shape == x.shape and old.dtype == x.dtype
        moved[name] = old.detach().copy_(x) if fits else x  # type: ignore[union-attr,arg-type]
    return moved


def answer(
    call: Call, case: dict[str, Any], inputs: Tensors, upstream: Tensors, trace: Trace
) -> tuple[dict[str, Any], Tensors]:
    """The record and the tensors of one case. This is where a candidate's crash becomes a part of its verdict."""
    trace.launches, trace.aten = [], []
    found: Tensors = {}
    record: dict[str, Any] = {"error": "", "phase": ""}
    run = _Run(_in_mode(call, case["mode"], inputs), case, inputs, upstream, trace, found, record)
    try:
        run.all_steps()
    except Exception as error:  # its own, Triton's and PyTorch's errors have no base of their own
        record |= {"error": f"{type(error).__name__}: {str(error)[:600]}", "kind": _kinds(error), "phase": run.phase}
    whole = {f"after {name}": x for name, x in {**inputs, **_prefixed(upstream)}.items() if x is not None}
    index, data = wire.pack(whole, whole=True)
    del index
    record |= {**trace.to_json(), "after": _hash(data)}
    return record, found


def _prefixed(upstream: Tensors) -> Tensors:
    return {f"upstream {index}": dy for index, dy in upstream.items()}


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _kinds(error: Exception) -> list[str]:
    return [kind.__name__ for kind in type(error).__mro__]


class _Run:
    """One case: a forward and a backward pass under watch, then the case's further steps."""

    def __init__(
        self,
        call: Call,
        case: dict[str, Any],
        inputs: Tensors,
        upstream: Tensors,
        trace: Trace,
        found: Tensors,
        record: dict[str, Any],
    ) -> None:
        self.call, self.case, self.inputs, self.upstream = call, case, inputs, upstream
        self.trace, self.found, self.record = trace, found, record
        self.phase = "forward"

    def all_steps(self) -> None:
        leaves, outputs = self._forward("forward")
        self.record["types"] = [type(y).__name__ for y in outputs]
        self.record["exact"] = [type(y) is torch.Tensor for y in outputs]
        self._keep("", outputs, {})
        ends = self._ends(outputs)
        self.record["differentiable"] = [y.requires_grad for y in outputs]
        if ends and self._names(leaves):
            self._keep("", (), self._backward("backward", leaves, ends))
            if "repeat" in self.case["steps"]:
                self._keep("second backward: ", (), self._backward("second backward", leaves, ends))
        if "repeat" in self.case["steps"]:
            self._keep("after backward: ", outputs, {})
            self._repeat()
        if "accumulate" in self.case["steps"]:
            self._accumulate()
        if "second derivative" in self.case["steps"]:
            self.phase = "second derivative"
            self.record["second derivative"] = self._second_derivative()

    def _forward(self, phase: str) -> tuple[Tensors, tuple[torch.Tensor, ...]]:
        self.phase = phase
        leaves = {
            n: None if x is None else x.detach().requires_grad_(n in self.case["wanted"])
            for n, x in self.inputs.items()
        }
        if self.case["alias"]:
            leaves[self.case["alias"][0]] = leaves[self.case["alias"][1]]
        with watched(self.trace, phase, self.case["watched"]):
            outputs = self.call(**leaves, **self.case["scalars"])
        return leaves, outputs

    def _names(self, leaves: Tensors) -> list[str]:
        return [name for name in self.case["wanted"] if leaves[name] is not None]

    def _ends(self, outputs: tuple[torch.Tensor, ...]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        pairs = [(y, self.upstream.get(str(i))) for i, y in enumerate(outputs)]
        return [(y, dy) for y, dy in pairs if y.requires_grad and dy is not None]

    def _backward(self, phase: str, leaves: Tensors, ends: Any) -> Tensors:
        self.phase = phase
        names = self._names(leaves)
        ys, dys = zip(*ends)
        with watched(self.trace, phase, self.case["watched"]):
            wanted: Any = [leaves[name] for name in names]
            found = torch.autograd.grad(ys, wanted, dys, allow_unused=True, retain_graph=True)
        return dict(zip(names, found))

    def _keep(self, prefix: str, outputs: tuple[torch.Tensor, ...], gradients: Tensors) -> None:
        # Copied at once: what a candidate does to a tensor later is no part of this result.
        tensors: Tensors = {f"{prefix}output {i}": y for i, y in enumerate(outputs)}
        tensors |= {f"{prefix}gradient of {name}": dx for name, dx in gradients.items()}
        for name, x in tensors.items():
            self.found[name] = None if x is None else _frozen(x)

    def _repeat(self) -> None:
        """Once more with the same values elsewhere in memory."""
        kept = self.inputs
        self.inputs = {name: None if x is None else _frozen(x) for name, x in kept.items()}
        leaves, outputs = self._forward("repeat")
        gradients = self._backward("repeated backward", leaves, ends) if (ends := self._ends(outputs)) else {}
        self._keep("repeat: ", outputs, gradients)
        self.inputs = kept

    def _accumulate(self) -> None:
        leaves, outputs = self._forward("accumulation")
        ends = self._ends(outputs)
        for _ in range(2 if ends else 0):
            torch.autograd.backward([y for y, _ in ends], [dy for _, dy in ends], retain_graph=True)
        for name in self._names(leaves):
            leaf = leaves[name]
            self.found[f"accumulated gradient of {name}"] = (
                None if leaf is None or leaf.grad is None else _frozen(leaf.grad)
            )

    def _second_derivative(self) -> str:
        """`refused: why`, `silent` when the first derivative is a constant to autograd, or `given`."""
        leaves, outputs = self._forward("second derivative")
        ends = self._ends(outputs)
        wanted: Any = [leaves[name] for name in self._names(leaves)]
        if not ends or not wanted:
            return "nothing to differentiate"
        try:
            ys, dys = zip(*((y, dy.detach().requires_grad_()) for y, dy in ends))
            first = torch.autograd.grad(ys, wanted, dys, create_graph=True, allow_unused=True)
            live = [dx for dx in first if dx is not None and dx.requires_grad]
            if not live:
                return "silent"
            # Not `grad`: it walks only towards named inputs, and may pass by the node that refuses.
            torch.autograd.backward([dx.sum() for dx in live])
        except (RuntimeError, NotImplementedError) as error:
            return f"refused: {str(error)[:200]}"
        return "given"


def _frozen(x: torch.Tensor) -> torch.Tensor:
    """A copy that no one else holds, with the same strides where it covers its storage once."""
    copy = torch.empty(max(wire.span(x.shape, x.stride()), 1), dtype=x.dtype, device=x.device)
    copy = copy.as_strided(x.shape, x.stride())
    return x.detach().clone() if 0 in x.stride() else copy.copy_(x.detach())


def _in_mode(call: Call, mode: str, inputs: Tensors) -> Call:
    """The function under a contract: without autograd, compiled, on another stream, under autocast, captured."""
    contexts: dict[str, Callable[[], Any]] = {
        "no_grad": torch.no_grad,
        "inference_mode": torch.inference_mode,
        "autocast": lambda: torch.autocast("cuda", torch.bfloat16),
    }
    if mode in contexts:
        return lambda **arguments: _within(contexts[mode](), call, arguments)
    if mode == "compiled":
        return torch.compile(call, fullgraph=True)
    if mode == "side stream":
        return lambda **arguments: _on_side_stream(call, arguments)
    if mode == "second GPU":
        return _on_second_gpu(call)
    if mode == "captured":
        return _captured(call, inputs)
    return call


def _within(context: contextlib.AbstractContextManager[Any], call: Call, arguments: Any) -> tuple[torch.Tensor, ...]:
    with context:
        return call(**arguments)


def _on_side_stream(call: Call, arguments: Any) -> tuple[torch.Tensor, ...]:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        outputs = call(**arguments)
    torch.cuda.current_stream().wait_stream(stream)
    return outputs


def _on_second_gpu(call: Call) -> Call:
    """Tensors lie on a device that is not the current one."""

    def moved(**arguments: Any) -> tuple[torch.Tensor, ...]:
        given = {name: x.to("cuda:1") if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}
        return tuple(y.to("cuda:0") for y in call(**given))

    return moved


def _captured(call: Call, inputs: Tensors) -> Call:
    """Forward and backward as CUDA graphs, made of samples and replayed on the real inputs."""
    names = [name for name, x in inputs.items() if x is not None and x.is_floating_point()]
    samples = tuple(inputs[name].detach().clone().requires_grad_() for name in names)  # type: ignore[union-attr]
    rest = {name: x for name, x in inputs.items() if name not in names}
    scalars: dict[str, Any] = {}

    def positional(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return call(**dict(zip(names, tensors)), **rest, **scalars)

    graphed: list[Any] = []

    def replayed(**arguments: Any) -> tuple[torch.Tensor, ...]:
        scalars.update({name: value for name, value in arguments.items() if name not in inputs})
        if not graphed:
            graphed.append(torch.cuda.make_graphed_callables(positional, samples))
        return as_tuple(graphed[0](*(arguments[name] for name in names)))

    return replayed


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
