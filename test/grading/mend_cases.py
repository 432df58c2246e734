"""Kernels that are correct on a GPU and that Triton's interpreter gets wrong: CASES maps a mend's name to its checks.

Imported in a child process, after `install()`: see run_mend_cases.py. Each check returns whether the result is right,
on torch's default device: with CUDA as that, they show that a GPU does what the mends claim.
"""

import torch
import triton
import triton.language as tl

from triton.language.extra import libdevice
from triton.language.extra.libdevice import tanh

BF16 = torch.bfloat16


@triton.jit
def _sum_below(out_ptr, n):
    total = 0
    for i in tl.range(0, n, 2):
        total += i
    tl.store(out_ptr, total)


def runtime_loop():
    out = torch.zeros(1, dtype=torch.int32)
    _sum_below[(1,)](out, 7)
    return out.item() == 12


@triton.jit
def _wide_offsets(out_ptr, n, big):
    for i in range(n):
        tl.store(out_ptr + i.to(tl.int64), i * big)


def loop_variable():
    out = torch.zeros(4, dtype=torch.int32)
    _wide_offsets[(1,)](out, 4, 2**30)
    return out.tolist() == [0, 2**30, -(2**31), -(2**30)]


@triton.jit
def _choose(out_ptr, flag):
    tl.store(out_ptr, 2.0 if flag else 1.0)
    tl.store(out_ptr + 1, tl.where(flag, 2.0, 1.0))


def bool_argument():
    yes, no = torch.zeros(2), torch.zeros(2)
    _choose[(1,)](yes, True)
    _choose[(1,)](no, False)
    return yes.tolist() == [2, 2] and no.tolist() == [1, 1]


@triton.jit
def _scale(x_ptr, out_ptr, scale):
    tl.store(out_ptr, tl.load(x_ptr) * scale.to(tl.float32))
    tl.store(out_ptr + 1, 1.0 / (scale + 1.0))


@triton.jit
def _scale_half(x_ptr, out_ptr, scale):
    tl.store(out_ptr, tl.load(x_ptr) * scale)


def float_argument_is_a_tensor():
    out = torch.zeros(2, dtype=torch.float64)
    _scale[(1,)](torch.ones(1, dtype=torch.float16), out, 0.1)
    single = torch.tensor(0.1)
    return out.tolist() == [single.item(), (1 / (single + 1)).item()]


def float_argument_widens_half():
    out = torch.zeros(1)
    _scale_half[(1,)](torch.ones(1, dtype=torch.float16), out, 1.0001)
    return out.item() == torch.tensor(1.0001).item()


@triton.jit
def _between(x_ptr, out_ptr, low, high):
    cols = tl.arange(0, 8)
    x = tl.load(x_ptr + cols)
    tl.store(out_ptr + cols, tl.where((x > low) and (x < high), x, 0.0))
    tl.store(out_ptr + 8 + cols, tl.where(not (x > low), x, 0.0))
    tl.store(out_ptr + 16 + cols, min(max(x, low), high))
    tl.store(out_ptr + 24 + cols, tl.where((x < low) or (x > high), x, 0.0))


def python_operators():
    x, out = torch.linspace(-2, 2, 8), torch.zeros(4, 8)
    _between[(1,)](x, out, -1, 1)
    zero = torch.zeros(())
    expected = (
        torch.where((x > -1) & (x < 1), x, zero),
        torch.where(x <= -1, x, zero),
        x.clamp(-1, 1),
        torch.where((x < -1) | (x > 1), x, zero),
    )
    return torch.equal(out, torch.stack(expected))


@triton.jit
def _nan(x_ptr, out_ptr):
    cols = tl.arange(0, 4)
    x = tl.load(x_ptr + cols)
    tl.store(out_ptr + cols, tl.maximum(x, 0.5))
    tl.store(out_ptr + 4 + cols, tl.minimum(x, 0.5))
    # Bounds of unequal size: sm_90 clips symmetric ones with min.xorsign.abs, where NaN gives the upper bound.
    tl.store(out_ptr + 8 + cols, tl.clamp(x, -1.0, 1.5))
    tl.store(out_ptr + 12 + cols, tl.maximum(x, 0.5, propagate_nan=tl.PropagateNan.ALL))


def nan_rules():
    x, out = torch.tensor([1.0, torch.nan, -3.0, 2.0]), torch.zeros(16)
    _nan[(1,)](x, out)
    expected = [1, 0.5, 0.5, 2, 0.5, 0.5, -3, 0.5, 1, -1, -1, 1.5, 1, torch.nan, 0.5, 2]
    return torch.equal(out.nan_to_num(7.0), torch.tensor(expected).nan_to_num(7.0))


@triton.jit
def _copy(x_ptr, out_ptr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(out_ptr + cols, tl.load(x_ptr + cols))


def _copied(x, dtype):
    out = torch.zeros(x.numel(), dtype=dtype)
    _copy[(1,)](x, out, BLOCK=x.numel())
    return out


def bf16_rounds_to_nearest_even():
    torch.manual_seed(0)
    x = torch.cat([torch.randn(1000), torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, -torch.inf, 1e-40, -0.0])])
    x = torch.cat([x, torch.zeros(1024 - x.numel())])
    return torch.equal(_copied(x, BF16), x.to(BF16)) and _copied(torch.full((1,), torch.nan), BF16).isnan().all()


def bf16_from_other_types():
    x = torch.arange(-512, 512) * 3
    return all(
        torch.equal(_copied(x.to(dtype), BF16), x.to(dtype).to(BF16))
        for dtype in (torch.int32, torch.int64, torch.float64, torch.float16, torch.bool)
    )


@triton.jit
def _full(out_ptr):
    tl.store(out_ptr + tl.arange(0, 4), tl.full((4,), 1.5, tl.bfloat16) * 2.0)


def bf16_constants():
    out = torch.zeros(4, dtype=BF16)
    _full[(1,)](out)
    return out.tolist() == [3.0] * 4


@triton.jit
def _bf16_arithmetic(x_ptr, y_ptr, out_ptr, less_ptr):
    cols = tl.arange(0, 64)
    x = tl.load(x_ptr + cols)
    y = tl.load(y_ptr + cols)
    # The sum rounds the difference first; of x * y + x a GPU makes one fma that rounds once.
    tl.store(out_ptr + cols, (x - y) + x)
    tl.store(out_ptr + 64 + cols, tl.where(x > y, x, -y))
    tl.store(out_ptr + 128 + cols, tl.sort(x))
    tl.store(out_ptr + 192 + cols, tl.exp((x / y).to(tl.float32)))
    tl.store(out_ptr + 256 + cols, tl.maximum(x, y))
    tl.store(out_ptr + 320 + cols, x * y)
    tl.store(less_ptr + cols, x < y)


def bf16_arithmetic():
    torch.manual_seed(0)
    x, y = torch.randn(64).to(BF16), torch.randn(64).to(BF16) + 2
    out, less = torch.zeros(6, 64, dtype=BF16), torch.zeros(64, dtype=torch.bool)
    _bf16_arithmetic[(1,)](x, y, out, less)
    quotient = torch.exp(x.float() / y.float()).to(BF16)
    expected = ((x - y) + x, torch.where(x > y, x, -y), x.sort()[0], quotient, torch.maximum(x, y), x * y)
    return torch.equal(out, torch.stack(expected)) and torch.equal(less, x < y)


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _reductions(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.sum(x, axis=0))
    tl.store(out_ptr + 1, tl.max(x, axis=0))
    tl.store(out_ptr + 2, tl.sum(tl.cumsum(x, axis=0).to(tl.float32), axis=0))
    tl.store(out_ptr + 3, tl.reduce(x, 0, _add))


def _tree(x):
    while len(x) > 1:
        x = x[: len(x) // 2] + x[len(x) // 2 :]
    return x.item()


def bf16_sums():
    torch.manual_seed(0)
    x, out = torch.randn(64).to(BF16), torch.zeros(4)
    _reductions[(1,)](x, out, BLOCK=64)
    total, prefixes = x.float().sum(), x.float().cumsum(0).sum()
    # In which order a GPU adds depends on the layout: 6 levels of roundings of partial sums below 16. Newer Tritons
    # keep prefix sums in bfloat16.
    near = torch.isclose(out, torch.stack([total, x.max().float(), prefixes, total]), atol=6 * 16 * 2**-9, rtol=0.03)
    return bool(near.all()) and torch.equal(out.to(BF16)[:2].float(), out[:2])


def fp16_sums_round():
    x, out = torch.ones(256, dtype=torch.float16), torch.zeros(4)
    x[0], x[1:] = 2048, 0.5
    _reductions[(1,)](x, out, BLOCK=256)
    return out[0].item() == _tree(x) != 2048 + 127.5


@triton.jit
def _keep_dims(x_ptr, rows_ptr, cols_ptr):
    i = tl.arange(0, 4)[:, None]
    j = tl.arange(0, 8)[None, :]
    x = tl.load(x_ptr + i * 8 + j)
    tl.store(rows_ptr + i, tl.sum(x, axis=1, keep_dims=True))
    tl.store(cols_ptr + j, tl.sum(x, axis=0, keep_dims=True))


def bf16_sums_keep_dims():
    x = torch.arange(32).reshape(4, 8).to(BF16)
    rows, cols = torch.zeros(4), torch.zeros(8)
    _keep_dims[(1,)](x, rows, cols)
    return torch.equal(rows, x.float().sum(1)) and torch.equal(cols, x.float().sum(0))


@triton.jit
def _fma(x_ptr, out_ptr):
    x = tl.load(x_ptr)
    tl.store(out_ptr, tl.fma(x, x, tl.full((), -1.0, x.dtype)))


def fma():
    out = torch.zeros(1)
    _fma[(1,)](torch.full((1,), 1 + 2**-9, dtype=torch.float16), out)
    return out.item() == 2**-8 + 2**-18


@triton.jit
def _dot(a_ptr, b_ptr, out_ptr):
    i = tl.arange(0, 16)[:, None]
    j = tl.arange(0, 16)[None, :]
    tl.store(out_ptr + i * 16 + j, tl.dot(tl.load(a_ptr + i * 16 + j), tl.load(b_ptr + i * 16 + j)))


def bf16_dot():
    torch.manual_seed(0)
    a, b, out = torch.randn(16, 16).to(BF16), torch.randn(16, 16).to(BF16), torch.zeros(16, 16)
    _dot[(1,)](a, b, out)
    return torch.allclose(out, a.float() @ b.float(), atol=1e-5)


@triton.jit
def _atomics(x_ptr, out_ptr, n):
    cols = tl.arange(0, 512)
    before = tl.atomic_add(out_ptr + cols * 0, tl.load(x_ptr + cols), mask=cols < n)
    tl.store(out_ptr + 1, tl.max(before, axis=0))


def bf16_atomics():
    out = torch.zeros(2, dtype=BF16)
    _atomics[(1,)](torch.ones(512, dtype=BF16), out, 100)
    hundred = out.tolist()
    _atomics[(1,)](torch.ones(512, dtype=BF16), out, 400)
    # Each addition rounds: from 256 on, adding 1 to a bfloat16 changes nothing.
    return hundred == [100, 99] and out[0].item() == 256


@triton.jit
def _running(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.store(out_ptr + tl.arange(0, 16), tl.cumsum(x, axis=0))
    tl.store(out_ptr + 16 + tl.arange(0, 16), tl.cumsum(x, axis=0, reverse=True))


def float_scans():
    x, out = torch.full((16,), 2.0**-24), torch.zeros(32)
    x[0] = 1.0
    _running[(1,)](x, out)
    true = torch.cat((x.double().cumsum(0), x.flip(0).double().cumsum(0).flip(0)))
    return bool((out - true).abs().max() < 2.0**-22)


@triton.jit
def _sum_of_rows(x_ptr, out_ptr):
    cols = tl.arange(0, 2)[None, :]
    x = tl.load(x_ptr + tl.arange(0, 16)[:, None] * 2 + cols)
    tl.store(out_ptr + cols, tl.sum(x, axis=0, keep_dims=True))


def row_sums():
    x, out = torch.full((16, 2), 2.0**-24), torch.zeros(2)
    x[0] = 1.0
    _sum_of_rows[(1,)](x, out)
    return bool((out - x.double().sum(0)).abs().max() < 2.0**-23)


@triton.jit
def _integer_sum(x_ptr, out_ptr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, 4)), axis=0))


def integer_sums():
    out = torch.ones(1, dtype=torch.int32)
    _integer_sum[(1,)](torch.full((4,), 2**30, dtype=torch.int32), out)
    return out.item() == 0


@triton.jit
def _special(x_ptr, out_ptr):
    x = tl.load(x_ptr)
    zero = x - x
    tl.store(out_ptr, tl.exp(x))
    tl.store(out_ptr + 1, tl.log(zero))
    tl.store(out_ptr + 2, zero / zero)
    tl.store(out_ptr + 3, tl.rsqrt(zero))
    tl.store(out_ptr + 4, x.to(tl.float16) * 1000)


def float_warnings():
    out = torch.zeros(5)
    _special[(1,)](torch.full((1,), 100.0), out)
    return out[[0, 1, 3, 4]].tolist() == [torch.inf, -torch.inf, torch.inf, torch.inf] and bool(out[2].isnan())


@triton.jit
def _extremes(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 4))
    tl.store(out_ptr, tl.max(x, axis=0))
    tl.store(out_ptr + 1, tl.min(x, axis=0))


@triton.jit
def _plus(a, b):
    return a + b


@triton.jit
def _larger_with_place(a, i, b, j):
    first = (a > b) | ((a == b) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def _own_reductions(x_ptr, total_ptr, place_ptr):
    rows, cols = tl.arange(0, 2)[:, None], tl.arange(0, 16)[None, :]
    x = tl.load(x_ptr + rows * 16 + cols)
    tl.store(total_ptr + rows, tl.reduce(x, 1, _plus, keep_dims=True))
    _, place = tl.reduce((x, tl.broadcast_to(cols, x.shape)), 1, _larger_with_place)
    tl.store(place_ptr + tl.arange(0, 2), place)


def own_reductions():
    x = torch.tensor([[1.0, *[2.0**-24] * 15], [0.0] * 16])
    x[1, 5], x[1, 11] = 2.0, 2.0
    totals, places = torch.zeros(2), torch.zeros(2, dtype=torch.int32)
    _own_reductions[(1,)](x, totals, places)
    return totals[0].item() > 1.0 and totals[1].item() == 4.0 and places.tolist() == [0, 5]


def all_nan():
    out = torch.zeros(2)
    _extremes[(1,)](torch.full((4,), torch.nan), out)
    return bool(out.isnan().all())


@triton.jit
def _libdevice(x_ptr, out_ptr, n):
    cols = tl.arange(0, 8)
    x = tl.load(x_ptr + cols, mask=cols < n, other=0.25)
    tl.store(out_ptr + cols, libdevice.tanh(x) + tanh(x))
    tl.store(out_ptr + 8 + cols, libdevice.pow(x, 2.0))
    tl.store(out_ptr + 16 + cols, libdevice.atan2(x, x * x))
    tl.store(out_ptr + 24 + cols, libdevice.round(x * 2))
    tl.store(out_ptr + 32 + cols, libdevice.rint(x * 2))
    tl.store(out_ptr + 40 + cols, tl.where(libdevice.isnan(x / (x - x) * 0), 1.0, 0.0))
    tl.store(out_ptr + 48 + cols, libdevice.lgamma(libdevice.expm1(x)) + libdevice.erfinv(x / 2))
    tl.store(out_ptr + 56 + cols, libdevice.log1p(libdevice.fmod(x, 0.3)) + libdevice.copysign(1.0, -x))


def libdevice_functions():
    x = torch.tensor([0.25, 0.75, 1.25, 1.75, 0.1, 1e-8, 0.5, 0.3])
    out = torch.zeros(8, 8)
    _libdevice[(1,)](x, out, 8)
    expected = (
        2 * torch.tanh(x),
        x**2,
        torch.atan2(x, x * x),
        torch.tensor([1.0, 2, 3, 4, 0, 0, 1, 1]),
        torch.tensor([0.0, 2, 2, 4, 0, 0, 1, 1]),
        torch.ones(8),
        torch.lgamma(torch.expm1(x)) + torch.erfinv(x / 2),
        torch.log1p(torch.fmod(x, 0.3)) - 1,
    )
    return torch.allclose(out, torch.stack(expected), rtol=1e-6)


@triton.jit
def _libdevice_half(x_ptr, out_ptr):
    tl.store(out_ptr, libdevice.tanh(tl.load(x_ptr)))


def libdevice_refuses_half_as_a_gpu_does():
    try:
        _libdevice_half[(1,)](torch.ones(1, dtype=torch.float16), torch.zeros(1))
    except Exception as error:
        return "float16" in str(error)
    return False


@triton.jit
def _one(out_ptr):
    tl.store(out_ptr, 1.0)


def list_grid():
    out = torch.zeros(1)
    _one[[1]](out)
    return out.item() == 1


@triton.jit
def _calls_a_device_function(x_ptr):
    tl.store(x_ptr, _add(tl.load(x_ptr), tl.sum(tl.zeros((2,), tl.float32))))


def language_leak():
    before = (tl.load, tl.core.load, tl.core.tensor.__add__)
    _calls_a_device_function[(1,)](torch.ones(1))
    return (tl.load, tl.core.load, tl.core.tensor.__add__) == before


@triton.jit
def _through_float8(x_ptr, y_ptr, n: tl.constexpr):
    offsets = tl.arange(0, n)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x.to(tl.float8e4nv).to(tl.float32))
    tl.store(y_ptr + n + offsets, x.to(tl.float8e5).to(tl.float32))


def fp8_rounds_to_nearest_even():
    x = torch.tensor([100.0, -100.0, 108.0, 0.00390625, 0.001, 1.1, 1e6, 0.0])
    y = torch.zeros(16)
    _through_float8[(1,)](x, y, 8)
    wanted = [x.clamp(-448, 448).to(torch.float8_e4m3fn).float(), x.clamp(-57344, 57344).to(torch.float8_e5m2).float()]
    return torch.equal(y, torch.cat(wanted))


CASES = {
    "scalar_index": (runtime_loop,),
    "loop_variable": (loop_variable,),
    "bool_argument": (bool_argument,),
    "float_argument": (float_argument_is_a_tensor, float_argument_widens_half),
    "python_operators": (python_operators,),
    "nan_rules": (nan_rules,),
    "fma": (fma,),
    "bf16_conversion": (bf16_rounds_to_nearest_even, bf16_from_other_types, bf16_constants),
    "bf16_arithmetic": (bf16_arithmetic,),
    "bf16_dot": (bf16_dot,),
    "bf16_atomics": (bf16_atomics,),
    "fp8_conversion": (fp8_rounds_to_nearest_even,),
    "half_sums": (bf16_sums, fp16_sums_round, bf16_sums_keep_dims),
    "row_sums": (row_sums,),
    "float_scans": (float_scans,),
    "own_reductions": (own_reductions,),
    "integer_sums": (integer_sums,),
    "float_warnings": (float_warnings,),
    "all_nan": (all_nan,),
    "libdevice": (libdevice_functions, libdevice_refuses_half_as_a_gpu_does),
    "list_grid": (list_grid,),
    "language_leak": (language_leak,),
}
