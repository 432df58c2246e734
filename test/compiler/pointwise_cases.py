"""Expressions in torch's words, each a reference of its own: name or domain of the inputs, then one a line.

`x`, `z` are floats over (B, H), `w` over (H,), `m` bools over (B, H), `k` whole numbers from 0 over (B, H).
"""

DOMAINS = {
    # Zeros, ties, the edges of saturating functions, small and large numbers of both signs.
    "any": (0, 0, 1, -1, 0.5, -0.5, 1e-3, -1e-3, 2, -2, 3, -3, 6, -6, 20, -20, 1e-6, 100, -100, 1.5, -1.5, 2.5),
    "moderate": (0, 0, 1, -1, 0.5, -0.5, 1e-3, -1e-3, 2, -2, 1e-5, -1e-5, 3, -3),
    "positive": (1, 1, 0.5, 1e-3, 2, 3, 6, 20, 1e-6, 100, 1.5, 2.5),
    "unit": (0.5, 0.5, 1e-3, 1 - 1e-3, 0.25, 0.75, 0.1, 0.9, 0.01),
    "inside": (0, 0, 0.5, -0.5, 1e-3, -1e-3, 0.9, -0.9, 1e-6, 0.25),
    "coarse": (0, 0, 0.02, -0.02, 0.5, 1, -1, 2, 3.5, -20),
    "above": (1.001, 1.5, 2, 3, 6, 20, 100, 1.25),
}

ANY = """
torch.exp(x)
torch.exp2(x)
torch.expm1(x)
torch.sin(x)
torch.cos(x)
torch.atan(x)
torch.tanh(x)
torch.asinh(x)
torch.erf(x)
torch.special.erfcx(x.abs())
torch.sigmoid(x)
torch.abs(x) * z
torch.sign(x) * z
torch.sgn(x) * z
torch.floor(x) * z
torch.ceil(x) * z
torch.round(x) * z
torch.round(x, decimals=2) * z
torch.trunc(x) * z
torch.frac(x)
torch.square(x)
torch.neg(x)
torch.positive(x) * 2
torch.deg2rad(x)
torch.rad2deg(x)
torch.fmod(x, 1.5)
torch.remainder(x, 1.5)
x % -1.5
torch.div(x, 1.5, rounding_mode="floor") * z
torch.div(x, 1.5, rounding_mode="trunc") * z
x.detach() // 1.5 * z
x**2
x**3
x**5
torch.float_power(x, 2).to(x.dtype) * z
2**x
torch.atan2(x, z)
torch.hypot(x, z)
torch.maximum(x, z)
torch.minimum(x, z)
torch.max(x, z)
torch.fmax(x, z)
torch.fmin(x, z)
torch.logaddexp(x, z)
torch.logaddexp2(x, z)
torch.copysign(x, z)
torch.lerp(x, z, 0.3)
torch.lerp(x, z, w)
torch.addcmul(x, z, w, value=0.3)
torch.rsub(x, z, alpha=2)
torch.add(x, z, alpha=3)
torch.heaviside(x.detach(), z.detach()) * z
x.clamp(min=0)
x.clamp(max=1)
x.clamp(-1, 0.5)
x.clip(0, 1)
x.clamp(min=z)
x.clamp(w, z)
F.relu(x)
F.relu6(x)
F.silu(x)
F.gelu(x)
F.gelu(x, approximate="tanh")
F.elu(x)
F.elu(x, 0.5)
F.selu(x)
F.celu(x, 2.0)
F.leaky_relu(x, 0.1)
F.leaky_relu(x)
F.prelu(x, w)
F.rrelu(x, training=False)
F.hardtanh(x)
F.hardtanh(x, -2.0, 0.5)
F.hardsigmoid(x)
F.hardswish(x)
F.hardshrink(x)
F.hardshrink(x, 1.5)
F.softshrink(x)
F.softshrink(x, 1.5)
F.tanhshrink(x)
F.threshold(x, 0.5, 2.0)
F.softsign(x)
F.softplus(x)
F.softplus(x, 2.0, 1.0)
F.logsigmoid(x)
F.mish(x)
F.dropout(x, 0.5, training=False) * z
F.dropout(x, 0.0) * z
F.relu(x * z, inplace=True)
F.softmin(x, -1)
x.clone().mul_(z).add_(1)
torch.where(x > z, x, 0.0)
torch.where(x > 0, x.exp(), z)
torch.where(x >= z, x * z, z - x)
torch.where(m, x, z)
torch.where(~m, x, 0.0)
x.masked_fill(m, -1.0)
x.masked_fill(x > 1, 0)
x * m
x * (x > 0)
x * (x > 0).float()
x * m.float()
x * (z <= 0).type_as(x.float())
x * torch.isfinite(z) + torch.isnan(x) * z
x * ((x > 0) & (z < 1) | m)
x * torch.logical_xor(x > 0, m)
x * torch.logical_and(x, z)
x * torch.logical_not(x > 0)
x * torch.signbit(z)
x * ((x > 0) ^ (z > 0))
x * (x.ne(z) | x.le(0.5))
x * torch.zeros_like(x) + z
x + torch.ones_like(x) * 2
x + torch.full_like(x, 0.5)
torch.nan_to_num(x, 0.0, 1.0, -1.0)
x * k
x * (k % 2)
x * (k & 1)
x * (k ^ 3)
x * (k << 2)
x * ((k + 2) >> 1)
x * ((k ^ 5) << k >> 1)
x * (k == 1)
x * (k // 2 + 1)
x - z / 2
2 / (x * x + 1)
1 - x
F.mse_loss(x, z, reduction="none")
F.l1_loss(x, z, reduction="none")
F.smooth_l1_loss(x, z, reduction="none")
F.smooth_l1_loss(x, z, reduction="none", beta=0.5)
F.huber_loss(x, z, reduction="none")
F.huber_loss(x, z, reduction="none", delta=0.5)
F.binary_cross_entropy_with_logits(x, z, reduction="none")
F.binary_cross_entropy_with_logits(x, z, w.detach(), reduction="none")
F.binary_cross_entropy_with_logits(x, z, pos_weight=w.detach(), reduction="none")
F.kl_div(x, z.abs(), reduction="none")
F.kl_div(x, z.clamp(max=2), reduction="none", log_target=True)
F.poisson_nll_loss(x.clamp(max=5), z, reduction="none")
F.soft_margin_loss(x, z.detach(), reduction="none")
F.hinge_embedding_loss(x, z, reduction="none")
F.margin_ranking_loss(x, z, 2 * m.float() - 1, margin=0.5, reduction="none")
torch.special.ndtr(x)
x * m.to(x.dtype)
x * m.long()
x * k.to(x.dtype)
x * k.bool()
x * x.bool()
x * x.to(torch.int64)
x.half().float()
x.to(torch.bfloat16).float() * z
x.detach().to(torch.float8_e4m3fn).float() * z
x * torch.tensor(2.0)
2.5**x
torch.where(m, x.masked_fill(k == 0, 1.0), z)
F.glu(torch.cat((x, z), -1), -1)
torch.cat((x, z), -1).exp()
torch.stack((x, z), -1).flatten(-2).tanh()
w[0] * x + w[1] * x * x
"""

POSITIVE = """
torch.log(x)
torch.log2(x)
torch.log10(x)
torch.log1p(x)
torch.sqrt(x)
torch.rsqrt(x)
torch.reciprocal(x)
1 / x
x**0.5
x**-0.5
x**-2
x**1.3
x ** (z - 2)
torch.xlogy(x, z)
torch.special.xlog1py(x, z)
torch.special.entr(x)
torch.div(x, z)
torch.true_divide(x, z)
torch.addcdiv(x, z, w)
torch.fmod(x, z + 0.3)
torch.remainder(x, -z - 0.3)
x.detach() // z.detach() * z
F.poisson_nll_loss(x, z, log_input=False, reduction="none")
F.poisson_nll_loss(x, z, full=True, reduction="none")
"""

UNIT = """
torch.logit(x)
torch.logit(x, 0.125)
torch.atanh(x)
F.binary_cross_entropy(x.sigmoid(), z.sigmoid(), reduction="none")
F.binary_cross_entropy(x.sigmoid(), z.sigmoid(), w.detach(), reduction="none")
"""

INSIDE = """
torch.asin(x)
torch.acos(x)
torch.atanh(x)
torch.erfinv(x)
torch.log1p(x)
torch.special.log_ndtr(x)
"""

# F.kl_div: where a sigmoid is 0 in float32, at -100, so is torch's gradient NaN in float32: 0 divided by itself.
MODERATE = """
torch.tan(x)
torch.sinh(x)
torch.cosh(x)
torch.erfc(x)
F.kl_div(x, z.sigmoid(), reduction="none")
"""

ABOVE = "torch.acosh(x)"

# torch's own gradient cancels near 0, in float64 too.
COARSE = "torch.sinc(x)"

ROWS = """
x - x.amax(-1, keepdim=True)
x * x.amin(-1, keepdim=True)
x * x.max(-1, keepdim=True)[0]
x * x.min(dim=-1, keepdim=True).values
(x - x.amax(-1, keepdim=True)).exp()
torch.exp(x - x.amax(-1, keepdim=True)) / torch.exp(x - x.amax(-1, keepdim=True)).sum(-1, keepdim=True)
x * x.norm(dim=-1, keepdim=True)
x * x.norm(1, dim=-1, keepdim=True)
x * torch.linalg.vector_norm(x, float("inf"), -1, keepdim=True)
x * torch.linalg.norm(x, dim=-1, keepdim=True)
F.normalize(x, dim=-1)
F.normalize(x, p=1.0, dim=-1)
x * F.cosine_similarity(x, z, dim=-1).unsqueeze(-1)
x * F.pairwise_distance(x, z, keepdim=True)
x * torch.var_mean(x, -1, keepdim=True)[0]
x - torch.std_mean(x, -1, keepdim=True)[1]
x * x.std(-1, keepdim=True)
x * x.var(-1, unbiased=False, keepdim=True)
x - x.logsumexp(-1, keepdim=True)
x / x.shape[-1] ** 0.5 * z.shape[0] ** 2
torch.einsum("bh,h->b", x, w)[:, None] * z
torch.logsumexp(torch.stack((x, z)), 0) * w
torch.cat((x, z), -1).softmax(-1)
torch.cat((x, z), -1).log_softmax(-1)
x * z.softmax(-1)[:, :1]
x.log_softmax(-1)[torch.arange(x.shape[0]), m[:, 0].long()] * z[:, 1]
F.cross_entropy(x, z.softmax(-1), reduction="none")
F.cross_entropy(x, z.softmax(-1), label_smoothing=0.1)
F.cosine_embedding_loss(x, z, 2 * m[:, 0].long() - 1, margin=0.1)
x * m.sum(-1, keepdim=True)
x * (x > 0).any(-1, keepdim=True)
x * (x > -200).all(-1, keepdim=True)
x.cumsum(-1)
x.cumsum(-1) * w
x.flip(-1).cumsum(-1).flip(-1)
x.flip(-1) * z
(x * w).flip(-1).exp()
x * F.softmax(z, -1).flip(-1)
(x * w).cumsum(-1) / x.abs().sum(-1, keepdim=True).add(1)
torch.ones_like(x).cumsum(-1) * x
x.cumsum(-1).sigmoid() * z
x.cumsum(-1) / torch.arange(1, x.shape[-1] + 1)
x * torch.arange(5, 2 * x.shape[-1] + 5, 2)
x.sigmoid().cumprod(-1) * z
torch.where(x > 1, 0.0, x * 0.5).cumprod(-1)
w[0] * x + w[3] * F.normalize(x, dim=-1)
torch.cat((x, z), -1).max(-1, keepdim=True)[0] * x
(x * m).sum(-1, keepdim=True) / m.sum(-1, keepdim=True) * z
"""

# Positions along an axis.
POSITIONS = """
x * x.argmax(-1, keepdim=True)
x - x.argmin(0) * w
x * (torch.arange(x.shape[-1]) == z.argmax(-1, keepdim=True))
F.one_hot((x * w).argmax(-1), x.shape[-1]) * z
torch.zeros_like(x).scatter(-1, z.max(-1, keepdim=True)[1], 1.0) * x
x.topk(1, -1)[0] * z + x.topk(1, -1)[1]
x.scatter(-1, x.argmin(-1, keepdim=True), 0.5) * 2
x * x.sign().max(-1, keepdim=True)[0] + x.sign().min(-1, keepdim=True)[1]
"""

# Elements of other positions along an axis.
MOVES = """
x * x.flip(-1)
x * torch.roll(x, 1, -1) * w
torch.roll(x * z, (2, -3), (0, 1)) + x
x[:, 1:] * x[:, :-1]
x[:, 1:-2].exp() * 2
torch.diff(x, dim=0) * w
F.pad(x[:, :-1], (1, 0)) * x
F.pad(F.gelu(x) * w, (1, 0))[:, :-1] + x
F.pad(x, (2, 3), value=0.5).exp()
x + w * F.pad(x, (0, 0, 1, 0))[:-1]
F.pad(x, (-1, 1)) * x
torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), -1) * z
torch.cat((x[:, 1:], x[:, -1:]), -1) * x
torch.cat((x[:, -1:], x[:, :-1]), -1) * z
x - x[:, :1] * w
x[:, 1:] - x[:, :1]
x.softmax(-1) + torch.roll(x.softmax(-1), 1, -1) * z
F.pad(x.cumsum(-1), (1, 0))[:, :-1] * z
x * F.pad(x * (x * x).mean(-1, keepdim=True), (0, 0, 1, 0))[:-1]
"""

WHOLE = """
(x * w).sum()
F.mse_loss(x, z)
F.l1_loss(x, z, reduction="sum")
F.binary_cross_entropy_with_logits(x, z)
F.kl_div(x, z.sigmoid(), reduction="batchmean")
x * x.max()
x.norm() * z
x * x.std()
F.triplet_margin_loss(x, z, x * 2)
x / x.norm()
x / x.norm(dim=0) * w
(x - x.mean()) / (x.std() + 1e-3)
x / (x.abs().max() + 1) * z
x * x.min() + z * x.amax(0)
torch.softmax(x.flatten(), 0).view_as(x) * z
torch.softmax(x, 0) + torch.softmax(z, 1)
torch.softmax(x, 0) * torch.softmax(x, 1)
F.log_softmax(x.flatten(), 0).reshape_as(x) * z
torch.logsumexp(x, (0, 1))
x * torch.logsumexp(z, (0, 1))
(x * w).square().sum().sqrt()
(x * m).sum() / m.sum()
(x - x.mean(0)) * torch.rsqrt(x.var(0, unbiased=False) + 1e-3) * w
F.normalize(x - x.mean(0), dim=-1)
(x * (w / (w.norm() + 1))).exp()
1 - F.cosine_similarity(x.flatten(), z.flatten(), 0)
(torch.logsumexp(x, 1) * w[0]).sum() / x.sum(1).exp().mean()
"""

CASES = [
    (domain, line)
    for domain, text in (
        ("any", ANY),
        ("positive", POSITIVE),
        ("unit", UNIT),
        ("inside", INSIDE),
        ("moderate", MODERATE),
        ("above", ABOVE),
        ("coarse", COARSE),
        ("moderate", ROWS),
        ("moderate", POSITIONS),
        ("moderate", MOVES),
        ("moderate", WHOLE),
    )
    for line in text.strip().splitlines()
]
