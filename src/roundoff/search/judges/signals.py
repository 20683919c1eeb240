"""Measuring by signal to noise: how the outputs agree with those of the float network."""

from collections.abc import Iterator, Sequence

import numpy as np

from roundoff.analysis.sensitivity.scoring import Scorer
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.search.judges.running import OutputRunner

__all__ = ["SignalJudge"]

# A perfect sample has endless decibels, which no mean bears; float32 holds no more than these.
_MOST_DB = 150.0
# Outputs in float are kept up to so many bytes: every network is compared with them.
_KEPT_BYTES = 256 << 20


class SignalJudge:
    """Signal to noise of the outputs in decibels, mean over outputs and samples.

    Args:
        runner: Runs networks on the samples.

    Raises:
        BadInput: No output holds numbers.
    """

    name, higher_is_better, by_sample, limits = "sqnr_db", True, True, None
    notes = (f"an output without any error counts as {_MOST_DB:g} dB",)

    def __init__(self, runner: OutputRunner) -> None:
        self._runner, self._scorer = runner, Scorer(["sqnr_db"])
        self._known: dict[tuple[int, ...], list[tuple[tuple[int, ...], list[Array]]]] = {}
        self._room = _KEPT_BYTES
        self.total = len(runner.samples.names)
        (_, first), *_ = runner.run(runner.model, [0])
        self._places = [
            at for at, array in enumerate(first) if isinstance(array, np.ndarray) and array.dtype.kind == "f"
        ]
        if not self._places:
            what = f"No output of {runner.model.path} holds float numbers to compare."
            raise BadInput(what, fix="give a function that measures accuracy with --evaluator")

    def float_values(self) -> Array:
        """As many decibels as count."""
        return np.full(self.total, _MOST_DB)

    def measure(self, model: Model, indices: Sequence[int]) -> Array:
        """Decibels of some samples."""
        found = []
        pairs = zip(self._in_float(indices), self._runner.run(model, indices), strict=True)
        for (chunk, ours), (_, theirs) in pairs:
            values = self._scorer.score(
                [ours[at] for at in self._places], [theirs[at] for at in self._places], len(chunk)
            )
            found.append(np.clip(np.nan_to_num(values[:, :, 0], nan=_MOST_DB), -_MOST_DB, _MOST_DB).mean(axis=1))
        return np.concatenate(found)

    def _in_float(self, indices: Sequence[int]) -> Iterator[tuple[tuple[int, ...], list[Array]]]:
        """What the float network gives, run only where that is not known."""
        key = tuple(indices)
        if key in self._known:
            yield from self._known[key]
            return
        size, kept = 0, []
        for chunk, arrays in self._runner.run(self._runner.model, indices):
            size += sum(arrays[at].nbytes for at in self._places)
            if size <= self._room:
                kept.append((chunk, arrays))
            yield chunk, arrays
        if size <= self._room:
            self._known[key] = kept
            self._room -= size

    def satisfied(self, float_score: float, score: float) -> None:
        """Nothing: a threshold decides."""
        return
