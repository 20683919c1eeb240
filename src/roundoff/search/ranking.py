"""Which nodes to raise first: rankings by what each does to the outputs when it alone is quantized."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.measure.metrics import mean_of, require
from roundoff.measure.rows import ROW_FIELDS, RowMeter, merged_rows
from roundoff.run.bench import spread
from roundoff.run.capture import Samples, read_feed
from roundoff.studies.sensitivity.functions import UserSensitivity, scores_of_nodes, worst_names
from roundoff.studies.sensitivity.settings import SensitivitySettings
from roundoff.studies.sensitivity.study import analyze_sensitivity

__all__ = ["SENSITIVITIES", "Ranked", "Ranker", "outstanding"]

SENSITIVITIES = ("sqnr_db", "cosine", "mse")
"""Metrics by which nodes are ranked; each knows which way it is better."""

# All nodes on a few samples, those that lead on more: rankings need no more, and trials correct them.
_FIRST_SAMPLES, _SAMPLES, _LEADING = 8, 16, 10
_FEWEST_STEPS = 2


@dataclass(frozen=True, slots=True)
class Ranked:
    """Nodes in order.

    Attributes:
        nodes: Their names, the one first that hurts most.
        outstanding: How many of the first stand out from the rest.
        runs: How often a sample was run for it, at most: most runs are of a part of the network.
    """

    nodes: tuple[str, ...]
    outstanding: int
    runs: int


def outstanding(harm: Sequence[float]) -> int:
    """How many values at the start of a falling sequence stand out: those in front of its largest step.

    Args:
        harm: What each node does, in decibels.

    Returns:
        From 1 to half of them; 1 where no step is larger than twice the next largest, so that none stands out.
    """
    first = [value for value in harm if math.isfinite(value)]
    steps = [left - right for left, right in pairwise(first)][: max(1, len(first) // 2)]
    if len(steps) < _FEWEST_STEPS:
        return 1
    largest = max(range(len(steps)), key=steps.__getitem__)
    others = max(step for at, step in enumerate(steps) if at != largest)
    return largest + 1 if steps[largest] > 2 * max(others, 0.0) else 1


@dataclass(frozen=True, slots=True)
class Ranker:
    """Ranks nodes.

    Attributes:
        samples: What networks are run on.
        sensitivity: One of `SENSITIVITIES`, or a function of the user's.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take; most of the free memory by default.
        progress: Told how far it is.
        local: Look at what a node itself hands on, as vendors' tools do, instead of at the outputs of the network.
    """

    samples: Samples
    sensitivity: str | UserSensitivity = SENSITIVITIES[0]
    threads: int | None = None
    max_memory: int | None = None
    progress: Progress = SILENT
    local: bool = False

    @property
    def words(self) -> str:
        """What it ranks by."""
        name = self.sensitivity if isinstance(self.sensitivity, str) else str(self.sensitivity.path)
        return f"local {name}" if self.local else name

    def rank(self, quantized: QuantizedModel) -> Ranked:
        """The nodes, the one first that hurts most.

        Raises:
            BadInput: The user's function failed.
            ModelFailed: The model cannot be run.
        """
        if isinstance(self.sensitivity, UserSensitivity):
            return self._one_by_one(quantized, self.sensitivity)
        if self.local:
            return self._one_by_one(quantized, _by_metric(self.sensitivity))
        # As trials are judged: by means over samples.
        metrics = tuple(dict.fromkeys(map(mean_of, (self.sensitivity, *SENSITIVITIES))))
        settings = SensitivitySettings(
            kinds=("node",),
            metrics=metrics,
            samples=_SAMPLES,
            first_samples=_FIRST_SAMPLES,
            top=_LEADING,
            threads=self.threads,
            max_memory=self.max_memory,
        )
        found = analyze_sensitivity(quantized, self.samples, settings, progress=self.progress)
        rows = found.rankings.get("node", ())
        runs = sum(len(row.score.samples) for row in rows) + min(_SAMPLES, len(self.samples.names))
        harm = [-row.score.mean[mean_of("sqnr_db")] for row in rows]
        return Ranked(tuple(row.score.subject.name for row in rows), outstanding(harm), runs)

    def _one_by_one(self, quantized: QuantizedModel, user: UserSensitivity) -> Ranked:
        """Rank by running the network once for each node, with that alone quantized."""
        chosen = spread(len(self.samples.names), _FIRST_SAMPLES)
        feeds = [read_feed(quantized.float_model, self.samples, index) for index in chosen]
        scores = scores_of_nodes(
            quantized, feeds, user, local=self.local, threads=self.threads, progress=self.progress
        )
        names = worst_names(scores, higher_is_better=user.higher_is_better)
        return Ranked(names, 1, 2 * len(scores) * len(feeds))


def _by_metric(name: str) -> UserSensitivity:
    """A metric as a function of two arrays."""
    (metric,) = require([name], command="tune", offers=ROW_FIELDS)

    def compare(reference: Array, candidate: Array) -> float:
        sums = merged_rows(RowMeter([metric]).measure([reference], [candidate], 1)[:, 0])
        return math.nan if sums is None else metric.value(sums)

    return UserSensitivity(Path(name), compare, metric.direction == "higher")
