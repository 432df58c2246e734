"""What a kernel's padded lanes hold: decides the fill of masked loads and where a reduction needs a mask."""

import math

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field

import torch

from liger_dev.compiler.ir import Value
from liger_dev.compiler.ops import OPS

# The abstract value of a lane: a number, or FINITE (some finite number), or UNKNOWN (perhaps inf or NaN).
FINITE, UNKNOWN = "finite", "unknown"
Lane = float | str


@dataclass
class Lanes:
    """Abstract evaluation of the lanes that pad `axes`: `fills` are what masked loads put there, `masked` values are
    forced to 0. A value that does not vary over `axes` is its own real self there, taken to be finite."""

    axes: frozenset[str]
    fills: Mapping[Value, Lane]
    masked: set[Value] = field(default_factory=set)
    _known: dict[Value, Lane] = field(default_factory=dict)

    def of(self, value: Value) -> Lane:
        if value in self.masked:
            return 0.0
        if value not in self._known:
            self._known[value] = self.fills[value] if value in self.fills else self._evaluate(value)
        return self._known[value]

    def mask(self, value: Value) -> None:
        self.masked.add(value)
        self._known.clear()

    def unmask(self, value: Value) -> None:
        self.masked.discard(value)
        self._known.clear()

    def _evaluate(self, value: Value) -> Lane:
        if value.op == "const":
            return float(value.attr("value"))
        if not value.axes & self.axes or not value.args:
            return FINITE
        lanes = [self.of(arg) for arg in value.args]
        if value.op in ("round", "detach", "float"):
            return lanes[0]
        if value.op in ("softmax", "log_softmax", "logsumexp", "cumsum", "cumprod", "sort"):
            return FINITE if lanes[0] in (0.0, FINITE) else UNKNOWN
        if value.op == "cat":
            return lanes[0] if len(set(lanes)) == 1 else UNKNOWN
        if value.op == "fixed":
            return lanes[0] if lanes[0] in (0.0, FINITE) else UNKNOWN
        if value.op in ("argmax", "kth_largest", "simplex_threshold"):
            return FINITE
        if value.op in ("sum", "max", "min"):
            return 0.0 if lanes[0] == 0.0 else FINITE if lanes[0] in (FINITE, -math.inf) else UNKNOWN
        if all(isinstance(lane, float) for lane in lanes):
            return _number(value, lanes)
        return _partly_known(value.op, lanes)


def _number(value: Value, lanes: list[Lane]) -> Lane:
    function = OPS[value.op].evaluate
    assert function is not None, value.op
    args = [torch.tensor(lane, dtype=torch.float64) for lane in lanes]
    if value.op == "where":
        args[0] = args[0] != 0
    result = float(function(*args))
    return UNKNOWN if math.isnan(result) else result


def _partly_known(op: str, lanes: list[Lane]) -> Lane:
    if UNKNOWN in lanes:
        return UNKNOWN
    infinite = any(isinstance(lane, float) and math.isinf(lane) for lane in lanes)
    match op:
        case "mul" if 0.0 in lanes and not infinite:
            return 0.0
        case "div" if lanes[0] == 0.0:
            return 0.0
        case "add" | "sub" if infinite and op == "add" or op == "sub" and lanes[0] == -math.inf and lanes[1] == FINITE:
            return next(lane for lane in lanes if isinstance(lane, float) and math.isinf(lane))
        case "where" if lanes[1] == lanes[2]:
            return lanes[1]
        case "exp" | "log" | "rsqrt" | "sqrt" | "div" | "pow" | "log1p":
            return FINITE if op == "exp" else UNKNOWN
    return UNKNOWN if infinite else FINITE
