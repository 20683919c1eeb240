"""Samples that a search does not use, and what its answer scores on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.measure.inference import mean_interval
from roundoff.quantize.recipes import Built
from roundoff.run.capture import Samples
from roundoff.search.evaluators import VendorJudge
from roundoff.search.judge_options import make_judge
from roundoff.search.judges import TrialJudge
from roundoff.search.result import HoldOut
from roundoff.search.settings import TuneData, TuneSettings

__all__ = [
    "Unseen",
    "make_unseen",
    "split_samples",
]


_SEED = 1
# Fewer say nothing of other samples.
_FEWEST = 10


@dataclass(frozen=True, slots=True)
class Unseen:
    """Samples that a search does not use.

    Attributes:
        judge: Measures on them, and perhaps on others.
        indices: Which they are.
    """

    judge: TrialJudge
    indices: tuple[int, ...]

    def score(self, built: Built) -> HoldOut:
        """What a quantized model scores on them.

        Raises:
            BadInput: The user's function failed.
            ModelFailed: The model cannot be run.
        """
        judge = self.judge
        quantized = switch_on(built.quantized.float_model, built.quantized.quantizers)
        ours, theirs = judge.float_values(), judge.measure(quantized, self.indices)
        if not judge.by_sample:
            return HoldOut(len(self.indices), float(ours), float(theirs))
        ours = ours[list(self.indices)]
        losses = (ours - theirs) * (1 if judge.higher_is_better else -1)
        return HoldOut(len(self.indices), float(ours.mean()), float(theirs.mean()), mean_interval(losses))


def make_unseen(
    model: Model, judge: TrialJudge, data: TuneData, *, settings: TuneSettings, held_out: Sequence[int]
) -> Unseen | None:
    """The samples a search does not use: those of a test set, or those that were held out; None without any.

    A function of the user's sees samples of a test set numbered on behind those of the evaluation, so that its
    lists can go on, too.

    Raises:
        BadInput: The evaluator cannot measure on other samples, or fails on them.
        ModelFailed: The model cannot be run.
    """
    if data.test is None:
        return Unseen(judge, tuple(held_out)) if held_out else None
    if isinstance(judge, VendorJudge):
        what = "evaluate(model) of the evaluator brings its own samples, so that test data have no effect."
        raise BadInput(what, fix="leave --test-data out, or let it be evaluate(run, samples)")
    samples, indices = data.test.samples, None
    if settings.judge.evaluator is not None:
        first = len(data.evaluation.names)
        indices = range(first, first + len(samples.names))
        samples = _Joined(data.evaluation, samples)
    options = replace(settings.judge, labels=data.test.labels)
    test = make_judge(model, samples, options, indices=indices)
    return Unseen(test, tuple(range(test.total)))


def split_samples(judge: TrialJudge, share: float) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """The samples that the search uses, None for all of them, and those that it does not.

    Raises:
        BadInput: The evaluator gives no values for single samples, or too few would be left.
    """
    if not share:
        return None, ()
    if not judge.by_sample:
        what = "Samples can only be held out where the evaluator gives a value for each, in any order."
        raise BadInput(what, fix="leave --holdout out, or let evaluate(run, samples) return one number per sample")
    count = round(share * judge.total)
    if not _FEWEST <= count <= judge.total - _FEWEST:
        what = f"--holdout {share:.0%} of {judge.total} samples leaves {count} to test on."
        raise BadInput(what, fix=f"hold out at least {_FEWEST}, and leave as many to search with")
    order = np.random.default_rng(_SEED).permutation(judge.total)
    return tuple(map(int, sorted(order[count:]))), tuple(map(int, sorted(order[:count])))


class _Joined:
    """Samples, and others behind them."""

    def __init__(self, first: Samples, second: Samples) -> None:
        self._first, self._second = first, second
        self.label = f"{first.label}, {second.label}"
        self.names = (*first.names, *second.names)

    def feed(self, index: int) -> Mapping[str, Array]:
        behind = index - len(self._first.names)
        return self._first.feed(index) if behind < 0 else self._second.feed(behind)
