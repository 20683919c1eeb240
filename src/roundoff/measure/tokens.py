"""Language models, token by token: nll of what comes next, divergence from float, answers that stay the same.

The outputs of a language model can look alike by every distance and say something else: what counts is the
probability of the token that follows. Known by its shapes: token numbers of shape (batch, tokens) go in, scores of
shape (batch, tokens, words) come out, and the scores of one token tell the next better than guessing does.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.inference import paired_probability

# Fewer words are classes, and tokens are none.
_FEWEST_WORDS = 16
# A network whose next token has less than this part of what guessing costs was trained to tell it.
_PREDICTS = 0.9
WORSE = 0.01
"""nll that is higher by more than this part is a loss, as a metric of the user's that drops by as much is."""
_CHANCE = 0.05

_TOKENS, _SCORES = 2, 3


@dataclass(frozen=True, slots=True)
class TokenScores:
    """What a language model lost, over all tokens that have a successor.

    Attributes:
        tokens: How many.
        nll_float: Mean negative log-likelihood of the next token in float, in nats.
        nll: The same of the other network.
        divergence: Mean Kullback-Leibler divergence of its probabilities from those in float, in nats.
        same_top1: Share of tokens with the same most probable successor.
        first_other: Median over sequences of the first position with another one; their length without any.
        significant: Whether the nll of sequences is worse by more than chance.
    """

    tokens: int
    nll_float: float
    nll: float
    divergence: float
    same_top1: float
    first_other: float
    significant: bool

    @property
    def worse(self) -> float:
        """By which part nll is higher."""
        return self.nll / self.nll_float - 1 if self.nll_float > 0 else 0.0

    @property
    def limits(self) -> str:
        """What it has to keep."""
        return f"nll <= {1 + WORSE:g} x float"

    @property
    def doubtful(self) -> bool:
        """Whether it is worse than is tolerated, and that may be chance."""
        return self.worse > WORSE and not self.significant

    @property
    def lost(self) -> bool:
        """Whether that is more than is tolerated, and no chance."""
        return self.worse > WORSE and self.significant


def token_inputs(feed: Mapping[str, Any], scores: Any) -> tuple[Array, Array] | None:
    """Token numbers of a sample and which of them count; None where scores are not of such tokens."""
    if getattr(scores, "ndim", 0) != _SCORES or scores.dtype.kind != "f" or scores.shape[-1] < _FEWEST_WORDS:
        return None
    fitting = [
        each for each in feed.values() if each.dtype.kind in "iu" and each.ndim == _TOKENS and each.shape[1] > 1
    ]
    fitting = [each for each in fitting if each.shape == scores.shape[:2]]
    masks = [each for each in fitting if int(each.max()) <= 1 and int(each.min()) >= 0]
    words = [each for each in fitting if all(each is not mask for mask in masks)]
    if not words or int(words[0].max()) >= scores.shape[-1] or int(words[0].min()) < 0:
        return None
    kept = masks[0].astype(bool) if masks else np.ones(words[0].shape, bool)
    return words[0], kept


def log_probabilities(scores: Array, axis: int = -1) -> Array:
    """Logarithms of probabilities along an axis, float64."""
    wide = scores.astype(np.float64)
    wide = wide - wide.max(axis=axis, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(axis=axis, keepdims=True)))


@dataclass(slots=True)
class TokenMeter:
    """Adds up what tokens lose, sample by sample."""

    _nll: list[tuple[float, float, int]] = field(default_factory=list)
    _divergence: float = 0.0
    _same: int = 0
    _first: list[int] = field(default_factory=list)
    _words: int = 0

    def add(self, feed: Mapping[str, Any], ours: Any, theirs: Any) -> None:
        """Look at one sample: what it is fed, scores in float, scores of the other network."""
        given = token_inputs(feed, ours)
        if (
            given is None
            or ours.shape != theirs.shape
            or not (np.isfinite(ours).all() and np.isfinite(theirs).all())
        ):
            return
        words, kept = given
        self._words = ours.shape[-1]
        left, right = log_probabilities(ours[:, :-1]), log_probabilities(theirs[:, :-1])
        following, counts = words[:, 1:, None].astype(np.int64), kept[:, 1:] & kept[:, :-1]
        costs = [-np.take_along_axis(each, following, axis=-1)[..., 0] for each in (left, right)]
        divergence = (np.exp(left) * (left - right)).sum(axis=-1)
        same = left.argmax(axis=-1) == right.argmax(axis=-1)
        for row in range(len(words)):
            chosen = counts[row]
            if not chosen.any():
                continue
            self._nll.append(
                (float(costs[0][row][chosen].sum()), float(costs[1][row][chosen].sum()), int(chosen.sum()))
            )
            self._divergence += float(divergence[row][chosen].sum())
            self._same += int(same[row][chosen].sum())
            others = np.flatnonzero(~same[row][chosen])
            self._first.append(int(others[0]) if others.size else int(chosen.sum()))

    def result(self) -> TokenScores | None:
        """What was lost; None where the network tells no next token."""
        found = self.scores()
        return None if found is None or found.nll_float > _PREDICTS * math.log(self._words) else found

    def scores(self) -> TokenScores | None:
        """What was lost, whatever the network tells; None without tokens that have a successor."""
        total = sum(count for *_, count in self._nll)
        if not total:
            return None
        ours, theirs = (sum(each[at] for each in self._nll) / total for at in (0, 1))
        means = [np.array([each[at] / each[2] for each in self._nll]) for at in (0, 1)]
        probability = paired_probability(*means)
        return TokenScores(
            total,
            ours,
            theirs,
            self._divergence / total,
            self._same / total,
            float(np.median(self._first)),
            theirs > ours and (probability is None or probability < _CHANCE),
        )


# Evaluators that ship: functions of a network and samples, one value for each sample.

_Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]


class TokenEvaluator:
    """One of the scores of language models as a function ``evaluate(run, samples)``.

    What is told against float is told against the network that was measured first on the same sample, which is the
    float one in every command.

    Attributes:
        NAME: What the score is called.
        HIGHER_IS_BETTER: Which way it is better.
    """

    def __init__(self, name: str, value: Callable[[TokenScores], float], *, higher_is_better: bool) -> None:
        self.NAME, self.HIGHER_IS_BETTER = name, higher_is_better
        self.__name__ = name
        self._value = value
        self._known: dict[bytes, Mapping[str, Array]] = {}

    def __call__(self, run: _Run, samples: Iterable[Mapping[str, Array]]) -> list[float]:
        """The score of each sample.

        Raises:
            ValueError: The network is no language model.
        """
        before, whole = len(self._known), TokenMeter()
        values = [self._measure(feed, run(feed), whole) for feed in samples]
        # Of all of them: a single short text may well be a surprise.
        if len(self._known) > before and whole.result() is None:
            raise ValueError("its scores tell the next token no better than guessing")
        return values

    def _measure(self, feed: Mapping[str, Array], found: Mapping[str, Array], whole: TokenMeter) -> float:
        name = next((name for name, each in found.items() if token_inputs(feed, each) is not None), None)
        if name is None:
            raise ValueError("no output has scores of words for each token that goes in")
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(feed[key]).tobytes() for key in sorted(feed)))
        exact = self._known.setdefault(digest.digest(), {name: np.array(found[name])})
        meter = TokenMeter()
        for each in (meter, whole):
            each.add(feed, exact[name], found[name])
        scores = meter.scores()
        if scores is None:
            raise ValueError("a sample has no token that is followed by another, or scores that are not finite")
        return self._value(scores)


def token_evaluators() -> dict[str, TokenEvaluator]:
    """The evaluators of language models by name, each without memory of a network."""
    made: Sequence[tuple[str, Callable[[TokenScores], float], bool]] = (
        ("nll", lambda scores: scores.nll, False),
        ("kl", lambda scores: scores.divergence, False),
        ("token_top1", lambda scores: scores.same_top1, True),
        ("first_divergence", lambda scores: scores.first_other, True),
    )
    return {name: TokenEvaluator(name, value, higher_is_better=higher) for name, value, higher in made}


TOKEN_EVALUATORS = ("nll", "kl", "token_top1", "first_divergence")
"""Their names."""
