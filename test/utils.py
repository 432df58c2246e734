"""What the tests of kernels share: inputs, the float64 truth, and the bound that eager PyTorch's own error sets."""

import math

from dataclasses import dataclass

import pytest
import torch

from torch._decomp import get_decompositions
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LOW_PRECISION = (torch.float32, torch.bfloat16, torch.float16)

# A kernel may err this many times as much as eager PyTorch does at the same dtype and shape,
EAGER_FACTOR = 4
# or, where eager is exact, by this many units in the last place of the largest true value.
FLOOR_ULPS = 4
# GPUs may flush what is smaller to zero.
SMALLEST_NORMAL = torch.finfo(torch.float32).tiny
# Eager's error at a few elements may be small by luck. So the reference in float64 also runs this many times with
# every result perturbed by up to half a unit in the last place of float32, as another order of operations would.
NOISY_RUNS = 6
# Operations with a reduction inside: what rounding does in there, noise on the result does not show, where it cancels.
_COMPOSITES = get_decompositions(
    [
        torch.ops.aten._softmax,
        torch.ops.aten._softmax_backward_data,
        torch.ops.aten._log_softmax,
        torch.ops.aten._log_softmax_backward_data,
        torch.ops.aten.logsumexp,
        torch.ops.aten.native_layer_norm,
        torch.ops.aten.native_layer_norm_backward,
        torch.ops.aten.native_group_norm,
        torch.ops.aten.native_group_norm_backward,
    ]
)
_SUMS = (torch.ops.aten.sum, torch.ops.aten.mean)
# What picks a value rounds nothing, and backward looks for that very value again.
_PICKS = (torch.ops.aten.amax, torch.ops.aten.amin, torch.ops.aten.max, torch.ops.aten.min)


@dataclass(frozen=True)
class Outcome:
    """What a call gave: its outputs, and the gradient of each input that needs one."""

    outputs: tuple[torch.Tensor, ...]
    gradients: dict[str, torch.Tensor | None]

    def named(self):
        """All tensors, by the names that messages give them."""
        outputs = {f"output {index}": y for index, y in enumerate(self.outputs)}
        return {**outputs, **{f"gradient of {name}": dx for name, dx in self.gradients.items()}}


def randn(shape, dtype):
    return torch.randn(shape, device=DEVICE).to(dtype)


def randint(high, shape):
    return torch.randint(high, shape, device=DEVICE)


def transposed(x):
    """The same values with the first axis fastest in memory."""
    return x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else x


def sliced(x):
    """The same values as every second element of a larger storage, from its second on."""
    if x.dim() == 0:
        return x
    storage = x.new_zeros((*x.shape[:-1], 2 * x.shape[-1] + 1))
    return storage[..., 1::2].copy_(x)


def expanded(x):
    """The first slice of `x` repeated with stride 0."""
    return x[:1].expand(x.shape) if x.dim() > 1 else x


def constant(x):
    """0.5 everywhere with stride 0, as `sum().backward()` gives."""
    return x.new_full((), 0.5).expand(x.shape)


def zeros(x):
    return torch.zeros_like(x)


def equal_rows(x):
    """2 everywhere: rows without any spread."""
    return torch.full_like(x, 2.0)


def large(x):
    return x * 1e3


def tiny(x):
    return x * 1e-3


def far_from_zero(x):
    """A mean that is a hundred times the spread, which a one-pass variance loses."""
    return x + 100.0


SPECIAL_VALUES = [zeros, equal_rows, large, tiny, far_from_zero]


class _InDouble(TorchFunctionMode):
    """Turns every cast to a low precision, and every tensor made in one, into double."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16):
            return args[0].double()
        args = [torch.float64 if arg in LOW_PRECISION else arg for arg in args] if _has_dtype(args) else args
        kwargs = {
            name: torch.float64 if isinstance(arg, torch.dtype) and arg in LOW_PRECISION else arg
            for name, arg in (kwargs or {}).items()
        }
        return func(*args, **kwargs)


def _has_dtype(args):
    return any(isinstance(arg, torch.dtype) for arg in args)


class _Float32Noise(TorchDispatchMode):
    """Multiplies what each operation computes in double by 1 + d, where |d| is at most float32's rounding error.

    So it does with the parts of composite operations, and with the terms of a sum: of n terms, each is in log2(n)
    partial sums that are rounded one by one, if halves are added up.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in _COMPOSITES:
            with self:
                return _COMPOSITES[func](*args, **(kwargs or {}))
        if func.overloadpacket in _SUMS:
            sums = func(*args, **(kwargs or {})).numel()
            roundings = math.log2(max(2, args[0].numel() / max(1, sums)))
            args = (_perturbed(args[0], math.sqrt(roundings)), *args[1:])
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in _PICKS or any(value.alias_info is not None for value in func._schema.returns):
            return result
        return tree_map_only(torch.Tensor, _perturbed, result)


def _perturbed(x, times=1.0):
    if x.dtype != torch.float64:
        return x
    # In place: some tensors are large.
    noise = torch.rand_like(x).mul_(2).sub_(1).mul_(times * torch.finfo(torch.float32).eps / 2)
    return noise.add_(1).mul_(x)


def float64_reference(reference):
    """`reference` in double throughout: its explicit casts to a low precision become casts to double."""

    def truth(*args, **kwargs):
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with _InDouble():
                return reference(*args, **kwargs)
        finally:
            torch.set_default_dtype(default)

    return truth


def differentiate(function, inputs, scalars, upstream, frozen=()):
    """Calls `function` on leaves with the values and strides of `inputs`, and differentiates what it returns."""
    leaves = {name: None if x is None else x.detach() for name, x in inputs.items()}
    wanted = {
        name: x.requires_grad_()
        for name, x in leaves.items()
        if x is not None and x.is_floating_point() and name not in frozen
    }
    outputs = as_tuple(function(**leaves, **scalars))
    differentiable = [(y, dy) for y, dy in zip(outputs, upstream, strict=True) if y.requires_grad]
    if not wanted or not differentiable:
        return Outcome(outputs, dict.fromkeys(wanted))
    ys, dys = zip(*differentiable, strict=True)
    gradients = torch.autograd.grad(ys, list(wanted.values()), dys, allow_unused=True)
    return Outcome(outputs, dict(zip(wanted, gradients, strict=True)))


def takes(reference, inputs, scalars=None):
    """Whether eager PyTorch runs the reference on such inputs, and backward: not every operation promotes dtypes."""
    try:
        differentiate(reference, inputs, scalars or {}, random_upstream(reference, inputs, scalars))
    except RuntimeError:
        return False
    return True


def as_tuple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def random_upstream(reference, inputs, scalars=None, layout=torch.clone):
    """A random gradient for each output, in the output's shape and dtype."""
    with torch.no_grad():
        outputs = as_tuple(reference(**inputs, **(scalars or {})))
    return tuple(
        layout(randn(y.shape, y.dtype).to(y.device) if y.is_floating_point() else torch.zeros_like(y)) for y in outputs
    )


def assert_agrees(function, reference, inputs, scalars=None, frozen=(), upstream=None):
    """Outputs and gradients of `function` are the true ones, within the error of the eager reference.

    The truth is the reference in float64 on the same low-precision values. Also asserts that shapes and dtypes are
    those of the eager reference, and that neither inputs nor upstream gradients were written to. `frozen` names inputs
    that need no gradient.
    """
    scalars = scalars or {}
    upstream = random_upstream(reference, inputs, scalars) if upstream is None else upstream
    eager = differentiate(reference, inputs, scalars, upstream, frozen)
    truth, noise = _true_outcome(reference, inputs, scalars, upstream, frozen, eager.named())
    before = {**{name: bytes_of(x) for name, x in inputs.items()}, "upstream": [bytes_of(dy) for dy in upstream]}
    actual = differentiate(function, inputs, scalars, upstream, frozen)
    after = {**{name: bytes_of(x) for name, x in inputs.items()}, "upstream": [bytes_of(dy) for dy in upstream]}
    for name in before:
        assert after[name] == before[name], f"{name} was written to"

    assert len(actual.outputs) == len(eager.outputs)
    wanted, expected = truth.named(), eager.named()
    for name, x in actual.named().items():
        assert_near_truth(name, x, wanted[name], expected[name], noise.get(name, 0.0))


def _true_outcome(reference, inputs, scalars, upstream, frozen, eager):
    """The outcome of the reference in float64, and the largest error of each of its tensors under float32's noise,
    where `eager` has numbers."""
    arguments = (
        float64_reference(reference),
        {name: in_double(x) for name, x in inputs.items()},
        scalars,
        [in_double(dy) for dy in upstream],
        frozen,
    )
    truth = differentiate(*arguments)
    wanted, noise = truth.named(), {}
    for _ in range(NOISY_RUNS):
        with _Float32Noise():
            noisy = differentiate(*arguments).named()
        for name, x in noisy.items():
            if x is not None and x.is_floating_point() and x.numel():
                finite = torch.isfinite(wanted[name]) & torch.isfinite(eager[name]) & torch.isfinite(x)
                noise[name] = max(noise.get(name, 0.0), _errors(x, wanted[name], finite).max().item())
    return truth, noise


def assert_near_truth(name, actual, truth, eager, noise):
    """`actual` has eager's shape, dtype, infinities and NaNs, and errs little more than eager, or `noise`, does."""
    if eager is None:
        assert actual is None or not actual.any(), f"{name} must be zero"
        return
    assert actual is not None, f"{name} is missing"
    assert type(actual) is torch.Tensor
    assert actual.shape == eager.shape, f"{name} has shape {tuple(actual.shape)}, eager has {tuple(eager.shape)}"
    assert actual.dtype == eager.dtype, f"{name} has dtype {actual.dtype}, eager has {eager.dtype}"
    assert actual.device == eager.device
    if not eager.is_floating_point():
        assert torch.equal(actual, eager), f"{name} differs"
        return

    nearest = truth.to(eager.dtype)  # infinite where the truth is beyond what the dtype holds
    infinite = ~torch.isfinite(nearest) & ~torch.isfinite(eager)
    # Eager's own infinities and NaNs may depend on the position in a vector register: the true ones will do as well.
    same = any(
        torch.allclose(actual[infinite], wanted[infinite].to(actual.dtype), rtol=0, atol=0, equal_nan=True)
        for wanted in (eager, nearest)
    )
    if name.startswith("gradient") and not same:
        # Which of them a gradient becomes depends on how its formula is written; a number it may not be.
        same = not torch.isfinite(actual[infinite]).any()
    assert same, f"{name} has infinities or NaNs other than eager's and the true ones"
    finite = torch.isfinite(nearest) & torch.isfinite(eager)
    if name.startswith("gradient"):
        # What a mean divides by its size last was that much larger before: near the largest number it may overflow.
        finite &= torch.isfinite(actual) | (truth.abs() * EAGER_FACTOR * truth.numel() < torch.finfo(torch.float32).max)
    if not finite.any():
        return
    errors = _errors(actual, truth, finite)
    eager_error = max(_errors(eager, truth, finite).max().item(), noise)
    scale = torch.where(finite, truth, 0).abs().max().item()
    bound = max(EAGER_FACTOR * eager_error, FLOOR_ULPS * torch.finfo(eager.dtype).eps * scale, SMALLEST_NORMAL)
    if not (errors <= bound).all():
        # argmax takes a NaN for the largest error, as it should.
        worst = errors.argmax()
        raise AssertionError(
            f"{name} is off by {errors.flatten()[worst].item():.3g} at flat index {worst.item()}: "
            f"{actual.flatten()[worst].item():.6g} instead of {truth.flatten()[worst].item():.6g} "
            f"(bound {bound:.3g}; eager is off by {eager_error:.3g})"
        )


def _errors(x, truth, finite):
    return torch.where(finite, x.double() - truth, 0).abs()


def assert_agrees_when_large(function, reference, inputs, scalars=None):
    """As `assert_agrees`, for tensors whose copies in float64 would not fit: eager PyTorch's results are the truth.

    What an address that overflows gives is far off, so that the bound may be wide. Skipped without the memory.
    """
    scalars = scalars or {}
    try:
        with torch.no_grad():
            outputs = as_tuple(reference(**inputs, **scalars))
            # Random: what constant ones give may cancel, and leave no more than rounding to compare.
            upstream = [torch.randn_like(y) if y.is_floating_point() else None for y in outputs]
            del outputs
        actual = differentiate(function, inputs, scalars, upstream)
        eager = differentiate(reference, inputs, scalars, upstream)
    except torch.OutOfMemoryError:
        pytest.skip("eager PyTorch needs more memory than there is")
    pairs = [*zip(actual.outputs, eager.outputs, strict=True)]
    pairs += [(actual.gradients[name], dx) for name, dx in eager.gradients.items() if dx is not None]
    for one, other in pairs:
        assert one.shape == other.shape and one.dtype == other.dtype
        for part, wanted in zip(one.flatten().split(2**26), other.flatten().split(2**26), strict=True):
            torch.testing.assert_close(part, wanted, rtol=0.05, atol=0.05 * wanted.abs().max().item(), equal_nan=True)


def assert_own_memory(function, inputs, scalars, upstream):
    """The gradients that leaves are left with share no memory, with one another or the upstream ones."""
    leaves = {
        name: None if x is None else x.detach().requires_grad_(x.is_floating_point()) for name, x in inputs.items()
    }
    pairs = [
        (y, dy) for y, dy in zip(as_tuple(function(**leaves, **scalars)), upstream, strict=True) if y.requires_grad
    ]
    ys, dys = zip(*pairs, strict=True)
    torch.autograd.backward(ys, dys)
    gradients = [x.grad for x in leaves.values() if x is not None and x.grad is not None]
    storages = [x.untyped_storage().data_ptr() for x in (*gradients, *dys)]
    assert len(set(storages)) == len(storages)


def assert_same(first, second):
    """Two outcomes are equal to the bit."""
    pairs = [*zip(first.outputs, second.outputs, strict=True)]
    pairs += [(first.gradients[name], second.gradients[name]) for name in first.gradients]
    for one, other in pairs:
        assert bytes_of(one) == bytes_of(other)


def in_double(x):
    """`x` in float64 with its own strides; integers and None as they are."""
    return x.double() if x is not None and x.is_floating_point() else x


def bytes_of(x):
    """The bytes of a tensor's values, so that NaNs compare equal."""
    if x is None:
        return None
    fresh = torch.empty(x.shape, dtype=x.dtype).copy_(x.detach())
    return fresh.flatten().view(torch.uint8).numpy().tobytes()


def on_contiguous(reference):
    """`reference` on contiguous copies, where it has a view of its inputs that others do not allow."""

    def call(**arguments):
        return reference(**{n: x.contiguous() if isinstance(x, torch.Tensor) else x for n, x in arguments.items()})

    return call


def as_function(module, scalars=()):
    """A module as a function of inputs and parameters; `scalars` name arguments that it was made with."""

    def call(**arguments):
        given = {name: arguments.pop(name) for name in module._parameters}
        own = {name: value for name, value in given.items() if value is not None}
        others = {name: value for name, value in arguments.items() if name not in scalars}
        return torch.func.functional_call(module, own, kwargs=others)

    return call


def backward_twice(function, inputs, scalars, upstream):
    """The outcomes of two backward passes through one forward pass."""
    leaves = {
        name: x.detach().requires_grad_(x.is_floating_point()) if x is not None else None for name, x in inputs.items()
    }
    wanted = [name for name, x in leaves.items() if x is not None and x.requires_grad]
    outputs = as_tuple(function(**leaves, **scalars))
    ys, dys = zip(*((y, dy) for y, dy in zip(outputs, upstream, strict=True) if y.requires_grad), strict=True)
    passes = [
        torch.autograd.grad(ys, [leaves[name] for name in wanted], dys, allow_unused=True, retain_graph=True)
        for _ in range(2)
    ]
    return [Outcome(outputs, dict(zip(wanted, gradients, strict=True))) for gradients in passes]


def graphed(function, inputs, scalars=None):
    """`function` with forward and backward captured in CUDA graphs, for inputs like these."""
    names = [name for name, x in inputs.items() if x is not None]
    samples = tuple(inputs[name].clone().requires_grad_(inputs[name].is_floating_point()) for name in names)

    def positional(*tensors):
        return function(**dict(zip(names, tensors, strict=True)), **(scalars or {}))

    replay = torch.cuda.make_graphed_callables(positional, samples, allow_unused_input=True)
    return lambda **arguments: replay(*(arguments[name] for name in names))


def on_side_stream(function):
    """`function` on a stream of its own."""

    def call(**arguments):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            outputs = function(**arguments)
        torch.cuda.current_stream().wait_stream(stream)
        return outputs

    return call
