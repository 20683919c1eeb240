"""From what probes saw of single nodes to scores of subjects."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.analysis.sensitivity.prober import Probed
from roundoff.analysis.sensitivity.probes import ESTIMATED, OutputProbes, estimated_score, probed_output
from roundoff.analysis.sensitivity.terms import Terms
from roundoff.core.tensors import Array
from roundoff.graph.block_variants import leave
from roundoff.metrics.registry import Metric, get_metric
from roundoff.runtime.blocks.chunks import rows_of

__all__ = ["ChunkEstimate", "EstimateScorer", "unpacked"]

_SQNR = get_metric("sqnr_db")


@dataclass(frozen=True, slots=True, eq=False)
class ChunkEstimate:
    """What some samples say of all subjects.

    Attributes:
        samples: Their indices.
        values: Of shape (subjects, samples, outputs, metrics); NaN where a metric cannot be estimated.
        sqnr_db: Of shape (subjects, samples, outputs).
        local: Energy of the change where it begins, over that of what is changed; of shape (subjects, samples).
        resumed: Whether it is known from an earlier run.
    """

    samples: tuple[int, ...]
    values: Array
    sqnr_db: Array
    local: Array
    resumed: bool

    def packed(self) -> Array:
        """All of it as one array, for `unpacked`."""
        local = np.broadcast_to(self.local[..., np.newaxis], self.sqnr_db.shape)
        return np.concatenate([self.values, np.stack([self.sqnr_db, local], axis=-1)], axis=-1)


def unpacked(samples: tuple[int, ...], known: Array) -> ChunkEstimate:
    """What `ChunkEstimate.packed` made one array of."""
    return ChunkEstimate(samples, known[..., :-2], known[..., -2], known[:, :, 0, -1], resumed=True)


class EstimateScorer:
    """Scores subjects.

    Args:
        terms: What each of them changes.
        outputs: The tensors that are compared.
        metrics: The metrics.
        cosine: Whether the direction of errors is known, so that the cosine can be estimated.

    Attributes:
        estimated: Names of the metrics that are estimated.
    """

    estimated: frozenset[str]

    def __init__(self, terms: Terms, outputs: Sequence[str], metrics: Sequence[Metric], *, cosine: bool) -> None:
        self._terms, self._outputs, self._metrics = terms, tuple(outputs), tuple(metrics)
        self.estimated = frozenset(name for name in ESTIMATED if cosine or name != "cosine")
        # Which variants each subject consists of.
        self._shares = np.zeros((len(terms.parts), len(terms.variants)))
        for place, parts in enumerate(terms.parts.values()):
            self._shares[place, list(parts)] = 1.0

    # Outputs may be infinite, and products of that NaN: such subjects have no estimate, and are measured.
    @np.errstate(over="ignore", invalid="ignore")
    def score(self, samples: tuple[int, ...], probed: Probed, probes: Sequence[OutputProbes]) -> ChunkEstimate:
        """Score all subjects.

        Args:
            samples: Indices of the samples.
            probed: What was seen of them.
            probes: How each output was probed.
        """
        count, terms = len(samples), self._terms
        shape = len(terms.parts), count, len(probed.outputs)
        values, sqnr_db = np.full((*shape, len(self._metrics)), np.nan), np.empty(shape)
        local = (self._shares[:, np.newaxis] * probed.local).max(axis=2, initial=0.0)
        wanted = {metric for metric in self._metrics if metric.name in self.estimated} | {_SQNR}
        for place, name in enumerate(self._outputs):
            output, vectors = probed.outputs[place], probed.vectors[place]
            rows = rows_of(output, count)
            known = [probed_output(probes[place], row, drawn) for row, drawn in zip(rows, vectors, strict=True)]
            seen = np.einsum("sv,nvp->snp", self._shares, probed.seen[place])
            whole = probed.along[place]
            along = np.zeros(shape[:2]) if whole is None else self._shares @ whole.T
            for at, subject in enumerate(terms.parts):
                if name in terms.leaving[subject]:
                    error = rows_of(leave(output, terms.leaving[subject][name]) - output, count).astype(np.float64)
                    seen[at] += np.vecdot(vectors, error[:, np.newaxis])
                    along[at] += np.vecdot(rows, error)
                for row, entry in enumerate(known):
                    scored = {
                        metric.name: estimated_score(
                            metric, entry, seen=seen[at, row], along=float(along[at, row])
                        )
                        for metric in wanted
                    }
                    values[at, row, place] = [scored.get(metric.name, math.nan) for metric in self._metrics]
                    sqnr_db[at, row, place] = scored["sqnr_db"]
        return ChunkEstimate(samples, values, sqnr_db, local, resumed=False)
