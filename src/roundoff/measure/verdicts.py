"""The one judge: outputs' scores, coverage, sanity of the samples and the user's metric give one grade.

Every command derives its word from the grade, so that no two of them contradict each other on the same model, chip
and data. Commands differ in what they add: who makes a loss, and how to repair it.
"""

import hashlib
import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Literal

import numpy as np

from roundoff.core.coverage import Coverage, Doubt, DoubtKind, Grade, Judgement
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.measure.classes import IndexCounts, class_count, class_predictions
from roundoff.measure.inference import mean_interval, paired_probability
from roundoff.measure.metrics import all_metrics, get_metric, ratio_db
from roundoff.messages.message import english

# Thresholds: from the command line, and from the named profiles that ship as data.


# Limits that a tensor's scores must keep, as data.

Scope = Literal["all", "outputs"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit on one metric: at least `limit` when higher is better, at most `limit` otherwise."""

    metric: str
    limit: float
    higher_is_better: bool

    def holds(self, values: dict[str, float]) -> bool:
        """Whether the scores keep the limit; a score that is absent or not a number does not."""
        value = values.get(self.metric, float("nan"))
        return value >= self.limit if self.higher_is_better else value <= self.limit

    def describe(self) -> str:
        """The limit in words, e.g. ``cosine >= 0.99``."""
        return f"{self.metric} {'>=' if self.higher_is_better else '<='} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class ThresholdSet:
    """Several limits that must all hold.

    Attributes:
        name: The profile's name; ``given`` when written on the command line.
        thresholds: The limits.
        scope: Which tensors are judged: all, or the network's outputs only.
    """

    name: str
    thresholds: tuple[Threshold, ...]
    scope: Scope = "all"

    def holds(self, values: dict[str, float]) -> bool:
        """Whether all limits are kept."""
        return all(threshold.holds(values) for threshold in self.thresholds)

    def describe(self) -> str:
        """The limits in words."""
        return ", ".join(threshold.describe() for threshold in self.thresholds)


def parse_thresholds(text: str) -> ThresholdSet:
    """Read ``cosine=0.99,rmse=1``: the least value of what should be high, the greatest of what should be low."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or not name:
            raise BadInput(
                english("{part!r} is not a threshold.", part=part.strip()),
                fix=english("write metric=limit, e.g. cosine=0.99,rmse=1"),
            )
        if name in limits:
            raise BadInput(
                english("The threshold for {name} is given twice.", name=name),
                fix=english("give each metric once"),
            )
        limits[name] = _limit(name, value)
    return _threshold_set("given", limits)


def load_profile(name: str) -> ThresholdSet:
    """Look up a named set of thresholds."""
    profiles = _profiles()
    if not isinstance(name, str) or name not in profiles:
        raise BadInput(english("There is no profile {name!r}.", name=name), fix=nearest(str(name), profiles))
    entry = profiles[name]
    return _threshold_set(name, entry["thresholds"], scope=entry.get("scope", "all"))


def _limit(name: str, value: str) -> float:
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if math.isnan(limit):
        raise BadInput(
            english("The threshold {name}={value} is not a number.", name=name, value=value),
            fix=english("write {name}=0.99, for example", name=name),
        )
    return limit


def _threshold_set(name: str, limits: Mapping[str, float], *, scope: Any = "all") -> ThresholdSet:
    thresholds = []
    for metric_name, limit in limits.items():
        metric = get_metric(metric_name)
        if metric.direction == "none":
            judging = ", ".join(m.name for m in all_metrics() if m.direction != "none")
            raise BadInput(
                english("{metric_name} describes, it does not judge.", metric_name=metric_name),
                fix=english("choose one of: {judging}", judging=judging),
            )
        thresholds.append(Threshold(metric_name, float(limit), metric.direction == "higher"))
    return ThresholdSet(name, tuple(thresholds), scope)


def _profiles() -> dict[str, Any]:
    return tomllib.loads(resources.files("roundoff.measure").joinpath("profiles.toml").read_text("utf-8"))


# Verdicts.

PROFILE = "default"
"""The profile by which outputs are judged where the user gives none; the same in every command."""

WORDS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "quantize": {
        "fine": frozenset({"fine"}),
        "lossy": frozenset({"lossy"}),
        "incomplete": frozenset({"incomplete"}),
        "not_enough_evidence": frozenset({"no_evidence"}),
    },
    "layers": {
        "fine": frozenset({"fine"}),
        "local": frozenset({"lossy", "incomplete", "no_evidence"}),
        "distributed": frozenset({"lossy"}),
        "open": frozenset({"incomplete", "no_evidence", "fine", "lossy"}),
    },
    "diagnose": {
        "healthy": frozenset({"fine"}),
        "culprits": frozenset({"lossy", "fine", "incomplete", "no_evidence"}),
        "distributed": frozenset({"lossy"}),
        "elsewhere": frozenset({"lossy", "fine"}),
        "not_enough_evidence": frozenset({"incomplete", "no_evidence", "lossy", "fine"}),
    },
}
"""The words of each command, and the grades with which each may stand. A place that is needlessly bad may be named
although the outputs are fine; nothing good is ever said of what is not."""


def usual_limits() -> ThresholdSet:
    """What outputs must keep where the user says nothing."""
    return load_profile(PROFILE)


# Whether a metric got worse: paired, since both networks see the same samples.

_LEVEL = 0.05
# The normal quantile of a two-sided interval of 95 %.
_Z = 1.959964


@dataclass(frozen=True, slots=True)
class PairedChange:
    """How much worse a metric is, over samples that both networks were given.

    Attributes:
        loss: Mean loss, positive where it got worse.
        low: Lower end of its interval of 95 %; NaN where samples cannot be told apart.
        high: Its upper end.
        chance: How probable so large a change is where there is none; None where that cannot be told.
        samples: On how many samples.
    """

    loss: float
    low: float = math.nan
    high: float = math.nan
    chance: float | None = None
    samples: int = 0

    @property
    def significant(self) -> bool:
        """Whether it got worse beyond chance; without scores of samples the loss itself decides."""
        return self.loss > 0 and (self.chance is None or self.chance <= _LEVEL)

    def lost(self, tolerated: float) -> bool:
        """Whether more than is tolerated is lost, beyond chance."""
        return self.loss > tolerated and self.significant

    def kept(self, tolerated: float) -> bool:
        """Whether no more than is tolerated is lost, at the upper end of the interval; never shown without one."""
        return self.high <= tolerated

    def within(self, budget: float) -> bool:
        """Whether nothing shows that more than so much is lost."""
        return self.loss <= budget or (not math.isnan(self.low) and self.low <= budget)


def paired_change(before: Array, after: Array, *, higher_is_better: bool = True) -> PairedChange:
    """How much worse a metric is, with an interval and a test.

    Answers that are right or wrong, and so change by one step or not at all, get the exact sign test of those that
    changed (McNemar's) and the interval of Agresti and Min, which holds for few samples; other scores a t-test.

    Args:
        before: Scores of the samples, of shape (n,), or of shape () where there is one for all.
        after: Scores of the same samples.
        higher_is_better: Which way it is better.
    """
    before, after = np.atleast_1d(before).astype(np.float64), np.atleast_1d(after).astype(np.float64)
    losses = before - after if higher_is_better else after - before
    losses = losses[~np.isnan(losses)]
    if losses.size < 2:
        return PairedChange(float(losses.sum()), samples=int(losses.size))
    loss = float(losses.mean())
    steps = np.unique(np.abs(losses[losses != 0]))
    if steps.size == 1 and np.isfinite(steps).all():
        step, worse, better = float(steps[0]), int((losses > 0).sum()), int((losses < 0).sum())
        low, high = _share_interval(worse, better, losses.size)
        return PairedChange(loss, step * low, step * high, _sign_test(worse, better), int(losses.size))
    if not steps.size:
        return PairedChange(0.0, *_share_interval(0, 0, losses.size), 1.0, int(losses.size))
    interval = mean_interval(losses) or (math.nan, math.nan)
    return PairedChange(loss, *interval, paired_probability(before, after), int(losses.size))


def _sign_test(worse: int, better: int) -> float:
    """Two-sided: how probable it is that of so many changes no more went the rarer way."""
    total, rarer = worse + better, min(worse, better)
    if total > 1000:
        return math.erfc(max(0.0, abs(worse - better) - 1) / math.sqrt(2.0 * total))
    return min(1.0, 2.0 * sum(math.comb(total, each) for each in range(rarer + 1)) / 2.0**total)


def _share_interval(worse: int, better: int, total: int) -> tuple[float, float]:
    """Agresti and Min (2005): half a sample is added to each cell of the table of pairs."""
    lost, won, size = worse + 0.5, better + 0.5, total + 2.0
    middle = (lost - won) / size
    half = _Z * math.sqrt(max(0.0, lost + won - (lost - won) ** 2 / size)) / size
    return max(-1.0, middle - half), min(1.0, middle + half)


# Whether the samples, the labels and the float network are any ground for a verdict.

# Fewer numbers than these may well be all the same.
_FEWEST_NUMBERS = 16
# Fewer rows than these may well be all of one class, and of two classes even more; so may rows of which that would
# happen more often than this, were each class as probable as any other.
_FEWEST_ROWS, _FEWEST_CLASSES, _BY_CHANCE = 4, 3, 1e-3
# A board gives few samples.
_ROWS_BESIDE_TENSORS = 10
# Inputs that differ by less than this part of their size are the same: a step of 8 bits is 40 times that.
_ALIKE = 1e-4
_CLASSIFIER_RANK = 2


class SampleSanity:
    """What was seen of the samples and of the float network's outputs."""

    def __init__(self) -> None:
        self._seen = 0
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._nan: list[str] = []
        self._constant: list[str] = []
        self._prints: set[bytes] = set()
        self._first: list[Array] | None = None
        self._alike = True
        self._rows = 1
        self._fed = False
        self._classes: dict[str, set[int]] = {}
        self._class_rows: dict[str, int] = {}
        self._class_count: dict[str, int] = {}
        self._answers: set[bytes] | None = set()
        self._distinct = False

    def add(self, sample: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> bool:
        """Take in a sample; whether anything can be measured on it.

        Args:
            sample: Its name.
            inputs: What the network is fed.
            outputs: What it gives in float.
        """
        self._seen += 1
        arrays = [np.asarray(each) for each in inputs.values()]
        self._fed = self._fed or bool(arrays)
        if not all(map(_finite, arrays)):
            self._inputs.append(sample)
        large = [each for each in arrays if each.size >= _FEWEST_NUMBERS and each.dtype.kind in "fiub"]
        if large and all(_nearly(each, np.full_like(each, each.flat[0])) for each in large):
            self._constant.append(sample)
        print_of = hashlib.blake2b(digest_size=16)
        for name, each in zip(inputs, arrays, strict=True):
            print_of.update(f"{name} {each.dtype.str} {each.shape} ".encode())
            print_of.update(
                np.ascontiguousarray(each).tobytes() if each.dtype.kind in "fiub" else repr(each).encode()
            )
        self._prints.add(print_of.digest())
        self._first = arrays if self._first is None else self._first
        self._alike = self._alike and all(map(_nearly, self._first, arrays))
        self._rows = max([self._rows, *(each.shape[0] for each in arrays if each.ndim > 1)])
        found = {name: each for name, each in outputs.items() if isinstance(each, np.ndarray)}
        if any(each.size and each.dtype.kind == "f" and not np.isfinite(each).any() for each in found.values()):
            self._outputs.append(sample)
        # An infinity may be meant, as of what is masked; a value that is no number never is.
        elif any(each.dtype.kind == "f" and np.isnan(each).any() for each in found.values()):
            self._nan.append(sample)
        for name, each in found.items():
            # An input that is handed on, such as the words of a text, is no answer.
            answers = each.size and each.ndim <= _CLASSIFIER_RANK and not any(_same(each, fed) for fed in arrays)
            classes = class_predictions(each) if answers else None
            if classes is not None and (class_count(each) or _FEWEST_CLASSES) >= _FEWEST_CLASSES:
                self._classes.setdefault(name, set()).update(classes.tolist())
                self._class_rows[name] = self._class_rows.get(name, 0) + classes.size
                self._class_count[name] = class_count(each) or 0
        self._add_answers(arrays, list(outputs.values()))
        return sample not in (*self._inputs[-1:], *self._outputs[-1:])

    def _add_answers(self, inputs: Sequence[Array], outputs: Sequence[Any]) -> None:
        """Take in what the network answers, row by row; nothing is said where an answer is no number."""
        filled = [each for each in outputs if not isinstance(each, np.ndarray) or each.size]
        if self._answers is None or not filled or not all(map(_tells_answers, filled)):
            self._answers = None
            return
        rows = {each.shape[0] if each.ndim > 1 else 1 for each in (*inputs, *filled)}
        count = rows.pop() if len(rows) == 1 else 1
        split = [[each[at] if count > 1 else each for each in filled] for at in range(count)]
        self._answers.update(b"".join(np.ascontiguousarray(each).tobytes() for each in row) for row in split)
        self._distinct = self._distinct or (count > 1 and any((each != each[:1]).any() for each in inputs))

    @property
    def nonfinite_inputs(self) -> tuple[str, ...]:
        """Samples that hold what is not finite: nobody is to blame for what comes of them."""
        return tuple(self._inputs)

    @property
    def unusable(self) -> tuple[str, ...]:
        """Samples that hold, or give, what is not finite."""
        return tuple(dict.fromkeys((*self._inputs, *self._outputs)))

    def doubts(self) -> tuple[Doubt, ...]:
        """What speaks against a good verdict."""
        # What is fed NaN gives NaN: said once.
        lost, partly = (
            [name for name in names if name not in self._inputs] for names in (self._outputs, self._nan)
        )
        kinds: tuple[tuple[DoubtKind, list[str]], ...] = (
            ("nonfinite_inputs", self._inputs),
            ("nonfinite_outputs", lost),
            ("nan", partly),
            ("constant", self._constant),
        )
        found = [Doubt(kind, len(names), self._seen, names[0]) for kind, names in kinds if names]
        if self._fed and self._seen == 1 and self._rows == 1:
            found.append(Doubt("single", 1, 1))
        elif self._fed and self._seen > 1 and self._alike and not self._constant:
            found.append(Doubt("repeated", self._seen, self._seen))
        if self._answers is not None and len(self._answers) == 1 and (len(self._prints) > 1 or self._distinct):
            found.append(Doubt("flat", self._seen, self._seen))
        # The same input gives the same class: that is said already.
        if not self._alike:
            for name, classes in self._classes.items():
                rows = self._class_rows[name]
                if len(classes) == 1 and _tell_one_class(rows, self._class_count[name]):
                    found.append(Doubt("one_class", rows, rows, str(min(classes))))
                    break
        return tuple(found)


def _tells_answers(output: Any) -> bool:
    """Whether it would differ from sample to sample in a network that answers; few classes may be the same."""
    return isinstance(output, np.ndarray) and output.dtype.kind == "f" and bool(np.isfinite(output).all())


def _same(left: Array, right: Array) -> bool:
    return left.dtype == right.dtype and np.array_equal(left, right)


def _nearly(left: Array, right: Array) -> bool:
    """Whether inputs are the same as far as any codes can tell."""
    if left.dtype.kind != "f" or left.shape != right.shape:
        return left.shape == right.shape and bool((left == right).all())
    size = float(np.abs(left).max(initial=0.0))
    return bool((np.abs(left - right) <= _ALIKE * size).all())


def _finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _tell_one_class(rows: int, classes: int) -> bool:
    """Whether so many rows of one class, of so many classes, are no chance; 0 where nobody knows how many."""
    if rows < _FEWEST_ROWS or 0 < classes < _FEWEST_CLASSES:
        return False
    return float(classes or _FEWEST_CLASSES) ** (1 - rows) <= _BY_CHANCE


def beside_tensors(doubts: Iterable[Doubt]) -> tuple[Doubt, ...]:
    """What is left of doubts about outputs where tensors inside of the network were compared, too.

    These tell more than few rows that happen to be of one class.
    """
    return tuple(each for each in doubts if each.kind != "one_class" or each.count >= _ROWS_BESIDE_TENSORS)


def one_class(predicted: Array, classes: int) -> tuple[Doubt, ...]:
    """The doubt about a network that answers the same whatever it is asked; none where it does not.

    Args:
        predicted: Its classes, one for each row.
        classes: How many it knows; 0 where nobody knows.
    """
    rows = np.asarray(predicted).ravel()
    if not _tell_one_class(rows.size, classes) or (rows != rows[0]).any():
        return ()
    return (Doubt("one_class", rows.size, rows.size, str(int(rows[0]))),)


def label_doubts(labels: Array, classes: int) -> tuple[Doubt, ...]:
    """The doubt about labels that are no class of the network; none where all are.

    Args:
        labels: The right class of each row.
        classes: How many the network knows; 0 where it gives class numbers, and nobody knows how many.
    """
    flat = np.asarray(labels).ravel()
    wrong = flat[(flat < 0) | (flat >= (classes or math.inf))]
    return (Doubt("labels", int(wrong.size), int(flat.size), str(wrong[0])),) if wrong.size else ()


# What two answers about the same network may differ by, of the larger: threads add in another order.
_REPEATED = 1e-3


def repeat_doubts(first: Array, second: Array, *, asked: bool = True) -> tuple[Doubt, ...]:
    """The doubt about an evaluator that scores the same network otherwise the second time; none without one.

    Args:
        first: What it said.
        second: What it said then.
        asked: Whether it ran the network at all.
    """
    ours, theirs = float(np.mean(first)), float(np.mean(second))
    if abs(ours - theirs) <= _REPEATED * max(abs(ours), abs(theirs)):
        return () if asked else (Doubt("blind"),)
    return (Doubt("unrepeatable", name=f"{ours:.6g}, {theirs:.6g}"),)


# A network that is asked for classes, and answers hardly more of them rightly than who does not know the question.

# So many times what guessing scores, and where one class has most samples this part of the way from there to all.
_ABOVE_CHANCE, _TOWARDS_RIGHT = 1.5, 0.25
# Of more samples chance plays no part in that.
_MOST_BY_COMB = 500


def guesses(score: float, chance: float) -> bool:
    """Whether a score is about what guessing gives."""
    return score < min(chance * _ABOVE_CHANCE, chance + _TOWARDS_RIGHT * (1 - chance))


def guess_doubts(right: Array, labels: Array) -> tuple[Doubt, ...]:
    """The doubt about labels that the float network does not know: as likely they are those of other samples.

    Args:
        right: Whether it gives each its label.
        labels: They.
    """
    _, counts = np.unique(np.asarray(labels).ravel(), return_counts=True)
    hits, total = int(np.asarray(right).sum()), int(np.asarray(right).size)
    if not total or not counts.size:
        return ()
    chance = float(counts.max() / counts.sum())
    # So many hits or more by naming the commonest class: where that is usual, so few samples tell nothing.
    lucky = (
        sum(math.comb(total, at) * chance**at * (1 - chance) ** (total - at) for at in range(hits, total + 1))
        if total <= _MOST_BY_COMB and chance < 1
        else 0.0
    )
    if chance < 1 and (guesses(hits / total, chance) or lucky > _LEVEL):
        return (Doubt("guess", hits, total),)
    return ()


# Outputs that are indices, such as those of ArgMax.


def index_scores(found: IndexCounts) -> Mapping[str, float]:
    """What an output of indices is judged by, in place of amounts: perfect scores where it does not differ."""
    usual = found.state != "different"
    perfect = {each.name: each.perfect for each in all_metrics() if each.perfect is not None} if usual else {}
    return {**perfect, "equal_share": found.share}


def index_doubts(found: Mapping[str, IndexCounts]) -> tuple[Doubt, ...]:
    """The doubt about outputs of which more indices differ than is usual, of so few that it may be chance."""
    return tuple(
        Doubt("indices", each.differing, each.total, name)
        for name, each in found.items()
        if each.state == "unclear"
    )


# Outputs that hardly vary any more: beside a large mean neither a cosine nor a ratio of energies shows it.

# An output that has lost its values has at most so many; in float so many at least, and so many times as many.
_FEW_VALUES, _FEWEST_VALUES, _TIMES_AS_MANY = 16, 8, 4
# Fewer answers may well be the same.
_FEWEST_ANSWERS = 4
# Counted are at most so many, and looked at first so many: nearly every output has more than a few at once.
_MOST_COUNTED, _FIRST_LOOK = 1 << 16, 1024
# What the usual limits allow of an error, here of how much the values vary.
_OF_VARIATION = 0.15
# What varies by less than this of its size is the rounding of float32.
_VARIES = 1e-5
_EIGHT_BITS = 255
# What ends so near to 1, and never goes beyond, is a probability or the like: its codes are those of all of them.
_NEAR_ONE = 0.5
# An error of more than the values vary by leaves nothing of them, where it is also more than 8 bits give an output
# whose values are all nearly the same in these samples: 26 dB.
_DROWNING = 0.05
# Fewer values may well be alike.
_MOST_ALIKE = 64
# Answers are lost when of so many rows fewer than this part is of the same class, and no more than chance gives,
# with so many standard deviations: an error of more than the values vary by is one then, however small it is.
_FEWEST_ANSWERED, _SAME_CLASS, _BEYOND_CHANCE = 16, 0.5, 2.0


class ValueTally:
    """How many different values an output, or a part of one, has in float and is left.

    It has lost them where only a few are left, of all samples together or of each of them, the error is more than
    the usual limits allow of how much the values vary, and 8 bits of its own would have kept them; and where all
    samples are answered the same, and a step of these 8 bits is less than they differ by.
    """

    def __init__(self) -> None:
        self._open = self._open_rows = True
        self._before, self._after = np.zeros(0), np.zeros(0)
        # Of single samples: the fewest values in float, and the most that are left.
        self._row_before, self._row_after = _MOST_COUNTED, 0
        self._low, self._high = math.inf, -math.inf
        self._count, self._mean, self._error = 0, 0.0, 0.0
        self._spread = self._row_spread = 0.0
        # While all answers of the other network are the same: it, and the sum and squares of those in float.
        self._same: Array | None = None
        self._answers = 0
        self._sums = np.zeros((2, 0))
        # How often each class is the best of a row, in float and of the other network, and of both.
        self._classes: tuple[Counter[int], Counter[int]] = Counter(), Counter()
        self._agreeing = 0

    def add(self, ours: Array, theirs: Array) -> None:
        """Take in one sample: the values in float, and the same of the other network, of one shape."""
        if not ours.size or ours.dtype.kind != "f":
            return
        self._add_answer(ours, theirs)
        self._add_classes(ours, theirs)
        found, values = theirs.ravel(), ours.ravel().astype(np.float64)
        if not (np.isfinite(values).all() and np.isfinite(found).all()):
            self._close()
            return
        if self._open_rows:
            self._add_values(values, found)
        # Chan, Golub and LeVeque: squares around the mean, of what was seen and of what is new.
        mean, size = float(values.mean()), values.size
        apart, total = mean - self._mean, self._count + size
        within = float(np.square(values - mean).sum())
        self._row_spread += within
        self._spread += within + apart**2 * self._count * size / total
        self._mean += apart * size / total
        self._count = total
        self._error += float(np.square(values - found).sum())

    def _close(self) -> None:
        self._open = self._open_rows = False
        self._before = self._after = np.zeros(0)

    def _add_values(self, values: Array, found: Array) -> None:
        left = np.unique(found[:_FIRST_LOOK])
        if len(left) <= _FEW_VALUES:
            left = np.unique(found)
        # As many values in one sample are too many of all of them, too.
        if len(left) > _FEW_VALUES:
            self._close()
            return
        mine = np.unique(values[:_MOST_COUNTED])
        self._row_before, self._row_after = min(self._row_before, len(mine)), max(self._row_after, len(left))
        if self._open:
            self._before, self._after = np.union1d(self._before, mine), np.union1d(self._after, left)
            self._open = len(self._after) <= _FEW_VALUES
        self._low, self._high = min(self._low, values.min()), max(self._high, values.max())

    def _add_answer(self, ours: Array, theirs: Array) -> None:
        if self._answers and self._same is None:
            return
        values, found = (each.ravel()[:_MOST_COUNTED].astype(np.float64) for each in (ours, theirs))
        if self._same is None:
            self._same, self._sums = found, np.zeros((2, found.size))
        self._answers += 1
        if not np.array_equal(self._same, found) or not np.isfinite(values).all():
            self._same = None
            return
        # Around the first answer, so that squares of large values take nothing away.
        apart = values - found
        self._sums += np.stack([apart, np.square(apart)])
        self._low, self._high = min(self._low, values.min()), max(self._high, values.max())

    def _add_classes(self, ours: Array, theirs: Array) -> None:
        if ours.ndim != _CLASSIFIER_RANK or (class_count(ours) or 0) < _FEWEST_CLASSES:
            return
        mine, other = class_predictions(ours), class_predictions(theirs)
        if mine is not None and other is not None:
            self._classes[0].update(mine.tolist())
            self._classes[1].update(other.tolist())
            self._agreeing += int((mine == other).sum())

    @property
    def _answered_by_chance(self) -> bool:
        """Whether no more rows are of the same class than would be if neither network knew of the other."""
        before, after = self._classes
        rows = before.total()
        if rows < _FEWEST_ANSWERED or self._agreeing >= _SAME_CLASS * rows:
            return False
        chance = sum(count * after[name] for name, count in before.items()) / rows**2
        return self._agreeing <= rows * chance + _BEYOND_CHANCE * math.sqrt(rows * chance * (1 - chance))

    @property
    def _all_same(self) -> bool:
        """Whether all samples are answered the same though they differ by more than a step of 8 bits."""
        if self._same is None or self._answers < _FEWEST_ANSWERS:
            return False
        mean, squares = self._sums / self._answers
        spread = math.sqrt(max(0.0, float((squares - np.square(mean)).mean())))
        reach, most = self._reach()
        return spread > _VARIES * most and reach / _EIGHT_BITS <= spread

    @property
    def lost(self) -> tuple[int, int] | None:
        """How many different values it has in float, and how many are left; None where they are not lost.

        They are those of all samples, or of the sample with the fewest in float and with the most that are left;
        how many samples there are where all are answered the same.
        """
        if self._all_same:
            return self._answers, 1
        if self._open and self._coarse(len(self._before), len(self._after), self._spread):
            return len(self._before), len(self._after)
        if self._open_rows and self._coarse(self._row_before, self._row_after, self._row_spread):
            return self._row_before, self._row_after
        return None

    def _coarse(self, before: int, after: int, squares: float) -> bool:
        if not self._count or before < max(_FEWEST_VALUES, _TIMES_AS_MANY * after):
            return False
        spread, (reach, most) = math.sqrt(squares / self._count), self._reach()
        step = reach / _EIGHT_BITS / math.sqrt(12)
        allowed = _OF_VARIATION * spread
        return spread > _VARIES * most and step <= allowed < math.sqrt(self._error / self._count)

    def _reach(self) -> tuple[float, float]:
        """How far codes of values in float reach, zero among them, and the largest magnitude of the values."""
        low, high = min(self._low, 0.0), max(self._high, 0.0)
        most = max(-low, high)
        return 1 - math.floor(low) if _NEAR_ONE <= most <= 1 else high - low, most

    @property
    def _varies(self) -> float:
        """Squares around the mean of all samples, or around those of single ones."""
        whole = self._open and self._coarse(len(self._before), len(self._after), self._spread)
        whole = whole or self.drowned
        return self._spread if whole else self._row_spread

    @property
    def drowned(self) -> bool:
        """Whether the error is more than the values vary by: their mean alone would tell as much."""
        size = self._spread + self._count * self._mean**2
        if self._count < _MOST_ALIKE or self._error <= self._spread:
            return False
        told_nothing = self._spread > _VARIES**2 * size and self._answered_by_chance
        return told_nothing or self._error > _DROWNING**2 * size

    @property
    def variation_db(self) -> float:
        """How much the values vary over the error, in decibels; infinite where there is no error."""
        return ratio_db(self._varies, self._error)

    @property
    def varying(self) -> float:
        """Which share of their energy varies; all of it where all samples are answered the same."""
        energy = self._spread + self._count * self._mean**2
        return self._varies / energy if energy and self._varies else 1.0


# The grade.


def judge(
    scores: Mapping[str, Mapping[str, float]],
    coverage: Coverage,
    *,
    limits: ThresholdSet | None = None,
    doubts: Iterable[Doubt] = (),
) -> Judgement:
    """Grade what was measured.

    Args:
        scores: Of each output, or part of one, that was judged.
        coverage: What was judged and what not.
        limits: What every one must keep; the usual ones by default.
        doubts: What speaks against the samples, the labels, the evaluator or the time.
    """
    limits = usual_limits() if limits is None else limits
    doubts = tuple(doubts)
    agrees = all(limits.holds(dict(values)) for values in scores.values()) if scores else None
    other_shape = any(each.why == "shape" for each in coverage.outputs.not_judged)
    grade: Grade
    if agrees is False or other_shape:
        grade = "lossy"
    elif agrees is None or doubts:
        grade = "no_evidence"
    else:
        grade = "fine" if coverage.outputs.complete else "incomplete"
    return Judgement(grade, coverage, doubts, limits.describe())


def with_metric(found: Judgement, change: PairedChange, tolerated: float) -> Judgement:
    """The judgement with the user's metric.

    A loss of it beyond chance and beyond what is tolerated is a loss whatever the outputs look like; a metric that
    is shown to keep its value excuses outputs that miss their limits, where all of them were judged. What so few
    samples cannot show does neither.

    Args:
        found: What is said of the outputs.
        change: How the metric changed.
        tolerated: How much of it may be lost.
    """
    if change.lost(tolerated):
        return replace(found, grade="lossy")
    if found.grade == "lossy" and change.kept(tolerated) and found.coverage.outputs.complete:
        return replace(found, grade="no_evidence" if found.doubts else "fine")
    return found


def may_say(command: str, word: str, judgement: Judgement) -> bool:
    """Whether a command may say a word of what was graded."""
    return judgement.grade in WORDS[command][word]
