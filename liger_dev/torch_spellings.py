"""How ATen operations are written in torch's public functions, and what their results are called for want of a name."""

METHODS = frozenset(
    "mean sum amax amin var std unsqueeze squeeze transpose permute expand expand_as view reshape flatten chunk split "
    "square clamp clamp_min clamp_max masked_fill type_as contiguous detach clone gather cumsum unbind repeat t".split()
)
FUNCTIONAL = frozenset(
    "silu gelu relu softplus elu leaky_relu mish selu celu hardswish hardsigmoid hardtanh relu6 linear layer_norm "
    "rms_norm group_norm softsign normalize pad one_hot mse_loss l1_loss smooth_l1_loss huber_loss kl_div "
    "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss hinge_embedding_loss "
    "margin_ranking_loss triplet_margin_loss soft_margin_loss poisson_nll_loss".split()
)
REDUCTIONS = ("none", "mean", "sum")
RENAMED = {
    "cross_entropy_loss": "F.cross_entropy",
    "nll_loss": "F.nll_loss",
    "nll_loss_nd": "F.nll_loss",
    "log_sigmoid": "F.logsigmoid",
    "special_expit": "torch.sigmoid",
    "special_erf": "torch.erf",
    "linalg_vector_norm": "torch.linalg.vector_norm",
}
FALLBACK = {
    "rsqrt": "rstd",
    "sum": "total",
    "amax": "largest",
    "amin": "smallest",
    "add": "added",
    "sub": "difference",
    "mul": "product",
    "div": "quotient",
    "pow": "power",
    "to": "cast",
    "neg": "negative",
}
