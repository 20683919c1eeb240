"""Which nodes to raise first: rankings by what each does to the outputs when it alone is quantized."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.interface import outputs
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.run.bench import Bench, spread
from roundoff.run.evaluators import call_user_code, load_user_module
from roundoff.run.feeds import Samples
from roundoff.studies.sensitivity.scoring import Scorer
from roundoff.studies.sensitivity.settings import SensitivitySettings
from roundoff.studies.sensitivity.study import analyze_sensitivity
from roundoff.studies.sensitivity.subjects import find_subjects

__all__ = ["SENSITIVITIES", "Ranked", "Ranker", "UserSensitivity", "load_sensitivity", "outstanding"]

SENSITIVITIES = ("sqnr_db", "cosine", "mse")
"""Metrics by which nodes are ranked; each knows which way it is better."""

# All nodes on a few samples, those that lead on more: rankings need no more, and trials correct them.
_FIRST_SAMPLES, _SAMPLES, _LEADING = 8, 16, 10
_FEWEST_STEPS = 2
_EXAMPLE = "write a function compare(reference, candidate) of two arrays that returns a number"


@dataclass(frozen=True, slots=True)
class UserSensitivity:
    """A function of the user's that says how an output agrees with what it is in float.

    Attributes:
        path: The file.
        compare: The function, of two arrays.
        higher_is_better: Which way it is better.
    """

    path: Path
    compare: Callable[[Array, Array], Any]
    higher_is_better: bool


def load_sensitivity(path: Path) -> UserSensitivity:
    """Read a Python file with a function ``compare(reference, candidate)``.

    Raises:
        BadInput: The file cannot be read or run, or does not say which way its number is better.
    """
    what = "The sensitivity"
    module = load_user_module(path, what=what)
    compare, higher = getattr(module, "compare", None), getattr(module, "HIGHER_IS_BETTER", None)
    if not callable(compare):
        raise BadInput(f"{path} has no function compare(reference, candidate).", fix=_EXAMPLE)
    if higher is None:
        what = f"{path} does not say which way its number is better."
        raise BadInput(what, fix="add HIGHER_IS_BETTER = True, or False")
    return UserSensitivity(path, compare, bool(higher))


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
        metrics = tuple(dict.fromkeys((self.sensitivity, *SENSITIVITIES)))
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
        harm = [-row.score.mean["sqnr_db"] for row in rows]
        return Ranked(tuple(row.score.subject.name for row in rows), outstanding(harm), runs)

    def _one_by_one(self, quantized: QuantizedModel, user: UserSensitivity) -> Ranked:
        """Rank by running the network once for each node, with that alone quantized."""
        model = quantized.float_model
        bench = Bench(model, self.samples, threads=self.threads, keep=True)
        indices = spread(len(self.samples.names), _FIRST_SAMPLES)
        subjects = find_subjects(quantized, ["node"])
        by_name = {each.name: each for each in quantized.quantizers}
        ends = outputs(model)
        handed_on = {node.name: [name for name in node.output if name] for node in model.proto.graph.node}
        scores = {}
        self.progress.start("ranking nodes", len(subjects))
        try:
            for subject in subjects:
                wanted = handed_on[subject.node][:1] if self.local else ends
                alone = [by_name[name] for name in subject.quantizers]
                pair = [bench.open(each, tensors=wanted) for each in ((), alone)]
                ran = bench.run(indices, *pair)
                found = [_compared(user, *(list(each.values()) for each in both)) for both in ran]
                scores[subject.name] = float(np.mean(found))
                self.progress.advance()
        finally:
            self.progress.finish()
        sign = 1 if user.higher_is_better else -1
        names = tuple(sorted(scores, key=lambda name: sign * scores[name]))
        return Ranked(names, 1, 2 * len(subjects) * len(indices))


def _by_metric(name: str) -> UserSensitivity:
    """A metric as a function of two arrays."""
    scorer = Scorer([name])

    def compare(reference: Array, candidate: Array) -> float:
        return float(scorer.score([reference], [candidate], 1)[0, 0, 0])

    return UserSensitivity(Path(name), compare, scorer.metrics[0].direction == "higher")


def _compared(user: UserSensitivity, ours: list[Array], theirs: list[Array]) -> float:
    """The mean over outputs of what the user's function says."""

    def compare(left: Array, right: Array) -> float:
        return float(user.compare(left, right))

    pairs = zip(ours, theirs, strict=True)
    found = [call_user_code(compare, *pair, path=user.path, what="The sensitivity") for pair in pairs]
    return float(np.mean(found))
