"""Curves by brute force: every model built and run whole, metrics in plain numpy."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.subgraph import tap
from roundoff.run.session import open_session

Feed = Mapping[str, Array]


def cosine(x: Array, y: Array) -> float:
    norms = math.sqrt(float(x @ x) * float(y @ y))
    return 1.0 if np.array_equal(x, y) else float(x @ y) / norms if norms else 0.0


def sqnr_db(x: Array, y: Array) -> float:
    noise = float(((x - y) ** 2).sum())
    return 10 * math.log10(float(x @ x) / noise) if noise else math.inf


def mse(x: Array, y: Array) -> float:
    return float(((x - y) ** 2).mean())


def chebyshev(x: Array, y: Array) -> float:
    return float(np.abs(x - y).max())


def mean_relative_error(x: Array, y: Array) -> float:
    some = x != 0
    return float((np.abs(x - y)[some] / np.abs(x)[some]).mean())


METRICS: Mapping[str, Callable[[Array, Array], float]] = {
    "cosine": cosine,
    "sqnr_db": sqnr_db,
    "mse": mse,
    "chebyshev": chebyshev,
    "mean_relative_error": mean_relative_error,
}


def tensors_of(model: Model, feeds: Sequence[Feed], names: Sequence[str]) -> list[list[Array]]:
    """Flat float64 values of tensors, for each sample."""
    session = open_session(model, outputs=tap(model, names))
    return [[array.astype(np.float64).ravel() for array in session.run(feed)] for feed in feeds]


def pairs(
    quantized: QuantizedModel, on: Iterable[str], feeds: Sequence[Feed], names: Sequence[str]
) -> list[list[tuple[Array, Array]]]:
    """Each tensor in float and with these quantizers on: a list of samples for each tensor."""
    chosen = frozenset(on)
    model = quantized.float_model
    changed = insert_quantizers(model, [each for each in quantized.quantizers if each.name in chosen])
    left, right = (tensors_of(each, feeds, names) for each in (model, changed))
    return [
        [(one[place], other[place]) for one, other in zip(left, right, strict=True)] for place in range(len(names))
    ]


def curve_values(
    quantized: QuantizedModel, on: Iterable[str], feeds: Sequence[Feed], names: Sequence[str], metric: str
) -> list[float]:
    """A metric of all samples together at each tensor.

    One called ``mean_...`` is the mean over samples; endless values count only where all are endless.
    """
    found = []
    compute = METRICS.get(metric) or METRICS[metric.removeprefix("mean_")]
    for samples in pairs(quantized, on, feeds, names):
        if metric in METRICS:
            found.append(compute(*(np.concatenate(side) for side in zip(*samples, strict=True))))
            continue
        values = [compute(x, y) for x, y in samples]
        finite = [value for value in values if math.isfinite(value)]
        found.append(sum(finite) / len(finite) if finite else values[0])
    return found


def pooled_sqnr_db(
    quantized: QuantizedModel, on: Iterable[str], feeds: Sequence[Feed], names: Sequence[str]
) -> list[float]:
    """Signal to noise of all samples together."""
    return [
        sqnr_db(np.concatenate([x for x, _ in samples]), np.concatenate([y for _, y in samples]))
        for samples in pairs(quantized, on, feeds, names)
    ]
