"""How the outputs of two models agree when both are fed the same samples."""

from collections.abc import Sequence

import numpy as np

from roundoff.core.measure import measure_pair
from roundoff.core.moments import NOTHING
from roundoff.core.progress import SILENT, Progress
from roundoff.core.scores import OutputAgreement, Status, TensorScore
from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.randomness import random_outputs
from roundoff.metrics.scoring import score
from roundoff.quantize.plain_outputs import same_output, without_numbers
from roundoff.runtime.feeds import Samples
from roundoff.runtime.runner import read_feed
from roundoff.runtime.session import open_session

__all__ = ["compare_outputs", "spread"]

# Outputs with more axes are maps or sequences; a largest element in each row of them means nothing.
_CLASSIFIER_RANK = 2


def spread(total: int, most: int) -> tuple[int, ...]:
    """At most so many indices, evenly from the first to the last."""
    if total <= most:
        return tuple(range(total))
    return tuple(int(index) for index in np.linspace(0, total - 1, most).round())


def compare_outputs(
    reference: Model,
    candidate: Model,
    samples: Samples,
    *,
    indices: Sequence[int],
    threads: int | None = None,
    progress: Progress = SILENT,
) -> tuple[OutputAgreement, ...]:
    """Run two models with the same inputs and outputs side by side.

    Args:
        reference: Is taken for right.
        candidate: Is judged.
        samples: What both are fed.
        indices: Which of the samples.
        threads: Threads per node.
        progress: Told of every sample.
    """
    sessions = [open_session(model, threads=threads) for model in (reference, candidate)]
    chance = random_outputs(reference)
    tallies = [_Tally(name, chance=chance.get(name, "")) for name in outputs(reference)]
    progress.start("comparing outputs", len(indices))
    try:
        for index in indices:
            feed = read_feed(reference, samples, index)
            sample = samples.names[index]
            left, right = (session.run(feed, sample=sample) for session in sessions)
            for tally, ours, theirs in zip(tallies, left, right, strict=True):
                tally.add(ours, theirs)
            progress.advance()
    finally:
        progress.finish()
    return tuple(tally.result() for tally in tallies)


class _Tally:
    """What was seen of one output."""

    def __init__(self, name: str, *, chance: str = "") -> None:
        self._name = name
        self._chance = chance and f"it depends on {chance}, which gives other values in each run"
        self._moments = NOTHING
        self._samples = self._rows = self._agreeing = self._differing = 0
        self._problem, self._unreadable = "", False

    def add(self, ours: Array, theirs: Array) -> None:
        self._samples += 1
        obstacle = without_numbers(ours)
        if obstacle:
            self._differing += not same_output(ours, theirs)
            same = f"differs in {counted(self._differing, 'sample')}" if self._differing else "is the same"
            self._problem, self._unreadable = f"{obstacle}; it {same}", True
            return
        if ours.shape != theirs.shape:
            self._problem = f"shapes differ: {list(ours.shape)} and {list(theirs.shape)}"
            return
        moments = measure_pair(ours, theirs)
        self._moments = self._moments.merge(moments) if self._samples > 1 else moments
        if 1 <= ours.ndim <= _CLASSIFIER_RANK and ours.shape[-1] > 1 and ours.size:
            same = np.argmax(ours, axis=-1) == np.argmax(theirs, axis=-1)
            self._rows += int(np.size(same))
            self._agreeing += int(np.count_nonzero(same))

    def result(self) -> OutputAgreement:
        if self._chance:
            return OutputAgreement(self._name, self._samples, TensorScore("unreadable", {}, self._chance), None)
        if self._problem:
            status: Status = "unreadable" if self._unreadable else "shape"
            return OutputAgreement(self._name, self._samples, TensorScore(status, {}, self._problem), None)
        if not self._moments.count and not self._moments.excluded:
            return OutputAgreement(self._name, self._samples, TensorScore("degenerate", {}, "it is empty"), None)
        top1 = self._agreeing / self._rows if self._rows else None
        return OutputAgreement(self._name, self._samples, score(self._moments), top1)
