"""The one judge: grades, sanity of samples, paired changes."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.coverage import Coverage, Doubt, OutputCoverage, Unjudged
from roundoff.measure.verdicts import (
    WORDS,
    PairedChange,
    SampleSanity,
    beside_tensors,
    guess_doubts,
    judge,
    label_doubts,
    may_say,
    one_class,
    paired_change,
    with_metric,
)

_GOOD = {"cosine": 0.9999, "relative_euclidean": 0.01, "sqnr_db": 40.0}
_BAD = {"cosine": 0.9, "relative_euclidean": 0.5, "sqnr_db": 6.0}
_ALL = Coverage(OutputCoverage(("a", "b")))
_PART = Coverage(OutputCoverage(("a",), (Unjudged("b", "missing"),)))


def _sanity(*samples: dict[str, np.ndarray], outputs: list[dict[str, np.ndarray]] | None = None) -> list[str]:
    check = SampleSanity()
    for at, feed in enumerate(samples):
        given = {"y": np.array([[float(at % 3), 1.5, float(at)]])} if outputs is None else outputs[at]
        check.add(f"sample {at}", feed, given)
    return [each.kind for each in check.doubts()]


def _noise(seed: int, shape: tuple[int, ...] = (1, 4, 8)) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_fine_needs_every_output_good_scores_and_no_doubt() -> None:
    assert judge({"a": _GOOD, "b": _GOOD}, _ALL).grade == "fine"
    assert judge({"a": _GOOD, "b": _BAD}, _ALL).grade == "lossy"
    assert judge({"a": _GOOD}, _PART).grade == "incomplete"
    assert judge({"a": _BAD}, _PART).grade == "lossy"
    assert judge({}, Coverage(OutputCoverage(()))).grade == "no_evidence"
    assert judge({"a": _GOOD, "b": _GOOD}, _ALL, doubts=[Doubt("time")]).grade == "no_evidence"
    assert judge({"a": _BAD, "b": _GOOD}, _ALL, doubts=[Doubt("constant", 1, 4)]).grade == "lossy"


def test_another_shape_is_a_loss_and_nan_is_not_kept() -> None:
    shape = Coverage(OutputCoverage(("a",), (Unjudged("b", "shape"),)))
    assert judge({"a": _GOOD}, shape).grade == "lossy"
    assert judge({"a": _GOOD | {"cosine": math.nan}, "b": _GOOD}, _ALL).grade == "lossy"


def test_a_metric_decides_only_beyond_chance() -> None:
    both = {"a": _GOOD, "b": _GOOD}
    worse = PairedChange(0.1, 0.05, 0.15, 0.001, 100)
    maybe = PairedChange(0.06, -0.03, 0.15, 0.5, 32)
    same, kept = (paired_change(np.ones(count), np.ones(count)) for count in (16, 400))
    fine, bad = judge(both, _ALL), judge(both | {"a": _BAD}, _ALL)
    assert with_metric(fine, worse, 0.01).grade == "lossy"
    assert with_metric(fine, maybe, 0.01).grade == "fine"
    assert with_metric(bad, maybe, 0.01).grade == "lossy"
    # 16 answers that stay the same leave room for many that do not; 400 show it; one number for all shows nothing.
    assert with_metric(bad, same, 0.01).grade == "lossy"
    assert with_metric(bad, kept, 0.01).grade == "fine"
    assert with_metric(bad, PairedChange(0.0), 0.01).grade == "lossy"
    assert with_metric(judge(both | {"a": _BAD}, _PART), kept, 0.01).grade == "lossy"
    assert with_metric(judge({}, _ALL), kept, 0.01).grade == "no_evidence"


def test_good_words_stand_only_with_a_good_grade_and_no_two_words_contradict() -> None:
    good = {("quantize", "fine"), ("layers", "fine"), ("diagnose", "healthy")}
    bad = {("quantize", "lossy"), ("layers", "distributed"), ("diagnose", "distributed")}
    grades = {
        judge(scores, coverage, doubts=doubts).grade: judge(scores, coverage, doubts=doubts)
        for scores, coverage, doubts in itertools.product(
            ({}, {"a": _GOOD}, {"a": _BAD}), (_ALL, _PART), ((), (Doubt("time"),))
        )
    }
    assert set(grades) == {"fine", "lossy", "incomplete", "no_evidence"}
    for grade, judgement in grades.items():
        said = {
            (command, word) for command in WORDS for word in WORDS[command] if may_say(command, word, judgement)
        }
        assert not (said & good and said & bad)
        assert bool(said & good) is (grade == "fine")


def test_samples_that_are_no_ground_for_a_verdict() -> None:
    fine = [{"x": _noise(seed)} for seed in range(12)]
    assert _sanity(*fine) == []
    broken = [*fine[:-1], {"x": np.where(np.arange(8) == 3, np.nan, fine[-1]["x"])}]
    assert _sanity(*broken) == ["nonfinite_inputs"]
    assert _sanity({"x": np.zeros((1, 4, 8))}, *fine) == ["constant"]
    assert _sanity(*[{"x": np.full((1, 16), 3.0)}] * 4) == ["constant"]
    assert _sanity(fine[0]) == ["single"]
    assert _sanity({"x": _noise(0, (6, 4, 8))}) == []
    assert _sanity(*[fine[0]] * 5) == ["repeated"]
    # A state that starts at zero is no sample of zeros, and one number is always constant.
    assert _sanity(*[{**each, "h": np.zeros((1, 32))} for each in fine]) == []
    assert _sanity(*[{"x": np.array([seed], np.float32)} for seed in range(4)]) == []


def test_float_outputs_that_say_nothing() -> None:
    fine = [{"x": _noise(seed)} for seed in range(12)]
    nan = [{"y": np.full((1, 3), np.nan if at == 2 else float(at))} for at in range(12)]
    assert _sanity(*fine, outputs=nan)[:1] == ["nonfinite_outputs"]
    some = [{"y": np.array([[at, np.nan if at in (2, 5) else 1.0, -np.inf]])} for at in range(12)]
    assert _sanity(*fine, outputs=some)[:1] == ["nan"]
    masked = [{"y": np.array([[at, 20 - 2 * at, -np.inf]])} for at in range(12)]
    assert _sanity(*fine, outputs=masked) == []
    same = [{"y": np.array([[0, 9 + at, 1]], np.float32)} for at in range(12)]
    assert _sanity(*fine, outputs=same) == ["one_class"]
    assert _sanity(*fine[:6], outputs=same[:6]) == []
    # Texts all begin with the same word; one that is handed on is no answer.
    texts = [{"words": np.array([[101, 5 + at, 7]], np.int64)} for at in range(12)]
    answers = [{"words": each["words"], "y": _noise(at)} for at, each in enumerate(texts)]
    assert _sanity(*texts, outputs=answers) == []
    assert SampleSanity().doubts() == ()


def test_no_samples_fed_is_no_single_sample() -> None:
    check = SampleSanity()
    check.add("run", {}, {"y": np.array([1, 2], np.float32)})
    assert check.doubts() == ()


def test_labels_and_classes() -> None:
    assert label_doubts(np.array([0, 1, 2]), 3) == ()
    [found] = label_doubts(np.array([0, 7, -1, 2]), 3)
    assert (found.kind, found.count, found.of, found.name) == ("labels", 2, 4, "7")
    assert one_class(np.zeros(12, int), 10)[0].kind == "one_class"
    # Four of ten classes are the same one time in a thousand, where each is as probable as any other.
    assert one_class(np.zeros(4, int), 10)[0].count == 4
    assert (
        one_class(np.zeros(12, int), 2) == one_class(np.zeros(3, int), 10) == one_class(np.zeros(4, int), 9) == ()
    )
    assert one_class(np.arange(12), 12) == ()


def test_two_of_32_may_be_chance_and_twelve_of_100_are_not() -> None:
    before = np.ones(32)
    after = before.copy()
    after[:2] = 0
    found = paired_change(before, after)
    assert found.loss == pytest.approx(2 / 32)
    assert found.chance == pytest.approx(0.5)
    assert not found.significant
    assert found.low < 0 < found.high
    many = paired_change(np.ones(100), np.arange(100) >= 12)
    assert many.significant
    assert many.chance == pytest.approx(2 * 0.5**12)
    assert 0 < many.low < 0.12 < many.high
    assert not many.within(0.005)
    assert found.within(0.005)


@given(st.lists(st.sampled_from([(1, 0), (0, 1), (1, 1), (0, 0)]), min_size=2, max_size=60))
def test_the_exact_test_of_right_and_wrong(pairs: list[tuple[int, int]]) -> None:
    before, after = np.array(pairs, dtype=float).T
    found = paired_change(before, after)
    worse, better = pairs.count((1, 0)), pairs.count((0, 1))
    total, rarer = worse + better, min(worse, better)
    expected = min(1.0, 2 * sum(math.comb(total, each) for each in range(rarer + 1)) * 0.5**total)
    assert found.chance == pytest.approx(expected)
    assert found.low <= found.loss <= found.high
    back = paired_change(after, before)
    assert (back.loss, back.low) == pytest.approx((-found.loss, -found.high))


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=30), st.booleans())
def test_other_scores_get_an_interval_around_their_mean(values: list[float], higher: bool) -> None:
    before = np.array(values)
    after = before - np.linspace(0.5, 1.5, before.size)
    found = paired_change(before, after, higher_is_better=higher)
    assert found.loss == pytest.approx(1.0 if higher else -1.0)
    assert found.low <= found.loss <= found.high
    assert found.significant is (higher and (found.chance or 0) <= 0.05)


def test_one_number_for_all_samples_decides_by_itself() -> None:
    found = paired_change(np.asarray(0.9), np.asarray(0.8))
    assert found.loss == pytest.approx(0.1)
    assert found.chance is None
    assert found.significant
    assert not found.within(0.05)


def test_few_rows_of_one_class_are_no_doubt_beside_tensors() -> None:
    few, many, flat = Doubt("one_class", 9, 9, "3"), Doubt("one_class", 10, 10, "3"), Doubt("flat")
    assert beside_tensors([few, many, flat]) == (many, flat)


def test_labels_that_the_network_hardly_knows_are_doubted() -> None:
    """As likely as not they are those of other samples: by rate, and by chance where there are few."""
    labels = np.arange(60) % 6

    def kinds(right: int, some: np.ndarray = labels) -> list[str]:
        return [each.kind for each in guess_doubts(np.arange(some.size) < right, some)]

    assert kinds(54) == []
    assert kinds(14) == ["guess"]
    # 6 of 20 with six classes: named at random, as many or more are right in one case of ten.
    assert kinds(6, labels[:20]) == ["guess"]
    assert sum(math.comb(20, k) * 0.2**k * 0.8 ** (20 - k) for k in range(6, 21)) > 0.05
    assert kinds(10, labels[:20]) == []
    assert kinds(5, np.zeros(8, int)) == []


def test_samples_that_no_code_can_tell_apart_are_one() -> None:
    first, noise = _noise(0), 1e-6 * _noise(1)
    assert _sanity({"x": first}, {"x": first + noise}, {"x": first - noise}) == ["repeated"]
    assert _sanity({"x": first}, {"x": first + 1e4 * noise}) == []
    assert _sanity(*({"x": 0.5 + 1e-6 * _noise(seed)} for seed in range(3)))[0] == "constant"
    # Temperatures around 290 K differ by little, and are no copies.
    assert _sanity(*({"x": 290 + 0.7 * _noise(seed)} for seed in range(3))) == []
