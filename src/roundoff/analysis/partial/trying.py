"""Scores of several candidates for one network, all from one pass over the samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.analysis.accumulation.candidates import build_candidates
from roundoff.analysis.accumulation.running import CandidateSession
from roundoff.analysis.partial.settings import ACCURACY
from roundoff.analysis.partial.tallies import OutputTally, Truth
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizer import Quantizer
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, ModelFailed
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.shapes import Value, values
from roundoff.runtime.ahead import run_ahead
from roundoff.runtime.blocks.chunks import Chunk, read_chunks, stack_feeds
from roundoff.runtime.blocks.opening import takes_batches
from roundoff.runtime.feeds import Samples
from roundoff.runtime.measure import complete_values
from roundoff.runtime.memory import available_memory
from roundoff.runtime.plan import PROGRAM_BYTES
from roundoff.runtime.runner import read_feed

__all__ = ["Trial", "score_candidates"]

# Samples are run together as long as the largest tensor of all of them takes no more than this.
_TOGETHER_BYTES, _MOST_TOGETHER = 8 << 20, 32
_TRIED_SAMPLES = 2
# A candidate holds what its largest nodes read and write, and what it shares until the others have it too.
_LIVE_TENSORS = 4
# Weights in float and quantized, each as built, as serialized, as read, and as the session's own.
_WEIGHT_COPIES = 8


@dataclass(frozen=True, slots=True)
class Trial:
    """What candidates are tried on.

    Attributes:
        model: The float model.
        samples: The samples.
        indices: Which of them.
        labels: The right class of each row of the outputs; None when it is not known.
        max_memory: Bytes the process may take; most of the free memory by default.
        threads: Threads to use; all cores by default.
    """

    model: Model
    samples: Samples
    indices: Sequence[int]
    labels: Array | None = None
    max_memory: int | None = None
    threads: int | None = None


def score_candidates(
    trial: Trial, choices: Sequence[Sequence[Quantizer]], *, progress: Progress = SILENT
) -> tuple[list[dict[str, float]], float | None]:
    """Score a network with several choices of quantizers on.

    What choices have in common runs once. Samples run together where that is shown to give the same bits.

    Args:
        trial: The network and the samples.
        choices: For each candidate the quantizers that are on.
        progress: Told of every sample.

    Returns:
        The scores of each candidate by name, those that exist, and the accuracy of the float network where labels
        are known.

    Raises:
        BadInput: Labels or samples do not fit.
        ModelFailed: The model cannot be run.
    """
    scoring = _Scoring(trial)
    together, at_once = scoring.room(len(choices))
    starts = range(0, len(choices), at_once)
    found: list[dict[str, float]] = []
    accuracy = None
    progress.start("scoring", len(starts) * len(trial.indices))
    try:
        for start in starts:
            group = choices[start : start + at_once]
            scores, accuracy = scoring.run(group, together, progress)
            found += scores
    finally:
        progress.finish()
    return found, accuracy


class _Scoring:
    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        model = trial.model
        feed = read_feed(model, trial.samples, trial.indices[0])
        shapes = {name: array.shape for name, array in feed.items()}
        everything = complete_values(model, values(model, shapes), feed, threads=trial.threads)
        self._largest = max((value.size_bytes for value in everything), default=0) or 1
        self._outputs = _comparable(model, everything)

    def room(self, choices: int) -> tuple[int, int]:
        """Samples that may run together, and candidates that run in one session."""
        trial = self._trial
        limit = available_memory() if trial.max_memory is None else trial.max_memory
        room = max(1, limit - PROGRAM_BYTES - _WEIGHT_COPIES * trial.model.weight_bytes)
        together = max(1, min(_MOST_TOGETHER, _TOGETHER_BYTES // self._largest))
        while together > 1 and _LIVE_TENSORS * self._largest * together * (1 + choices) > room:
            together //= 2
        at_once = room // (_LIVE_TENSORS * self._largest * together) - 1
        return together, max(1, min(choices, at_once))

    def run(
        self, group: Sequence[Sequence[Quantizer]], together: int, progress: Progress
    ) -> tuple[list[dict[str, float]], float | None]:
        """Scores of some candidates, and the accuracy of the float network where labels are known."""
        trial = self._trial
        tallies = [OutputTally(len(self._outputs)) for _ in group]
        truth = (
            None
            if trial.labels is None
            else Truth(trial.labels, samples=len(trial.indices), candidates=len(group))
        )
        session = CandidateSession(build_candidates(trial.model, group), self._outputs, threads=trial.threads)
        most = together if together > 1 and self._may_run_together(session) else 1

        def run(chunk: Chunk) -> list[tuple[Array, list[Array]]]:
            return list(session.run(chunk.feed, sample=chunk.label).values())

        chunks = read_chunks(trial.model, trial.samples, trial.indices, most=most)
        for chunk, found in run_ahead(run, chunks, stop=session.stop):
            references = [reference for reference, _ in found]
            by_candidate = [[others[at] for _, others in found] for at in range(len(group))]
            for tally, own in zip(tallies, by_candidate, strict=True):
                tally.add(references, own, chunk.names)
            if truth is not None:
                truth.add(references, by_candidate, len(chunk.samples))
            progress.advance(len(chunk.samples))
        scores = [tally.scores() for tally in tallies]
        if truth is None:
            return scores, None
        return [each | {ACCURACY: truth.share(at)} for at, each in enumerate(scores)], truth.share()

    def _may_run_together(self, session: CandidateSession) -> bool:
        """Whether several samples at a time give, bit for bit, what each gives alone."""
        trial = self._trial
        if not takes_batches(trial.model) or len(trial.indices) < _TRIED_SAMPLES:
            return False
        feeds = [read_feed(trial.model, trial.samples, index) for index in trial.indices[:_TRIED_SAMPLES]]
        if any(array.ndim == 0 or array.shape != feeds[1][name].shape for name, array in feeds[0].items()):
            return False
        try:
            joined = _all_arrays(session, stack_feeds(feeds))
        except ModelFailed:
            return False
        alone = [_all_arrays(session, feed) for feed in feeds]
        return all(
            whole.ndim > 0 and np.array_equal(whole, np.concatenate(parts))
            for whole, parts in zip(joined, zip(*alone, strict=True), strict=True)
        )


def _all_arrays(session: CandidateSession, feed: Mapping[str, Array]) -> list[Array]:
    return [array for reference, others in session.run(feed).values() for array in (reference, *others)]


def _comparable(model: Model, everything: Sequence[Value]) -> list[Value]:
    """The outputs that hold numbers."""
    leaving = frozenset(outputs(model))
    found = [value for value in everything if value.name in leaving and not value.obstacle()]
    if not found:
        raise BadInput(f"{model.path} has no output of numbers to compare.", fix="give --evaluator instead")
    return found
