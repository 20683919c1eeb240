"""Remedies from cheapest to dearest, and what they change."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from roundoff.core.coverage import Coverage, Doubt, Judgement, OutputCoverage
from roundoff.core.plan import Step
from roundoff.core.quantizers import dequantize, representable_range
from roundoff.demo import load_split, model_path
from roundoff.diagnosis.interventions import reach
from roundoff.diagnosis.investigation import DiagnoseSettings
from roundoff.diagnosis.loss import Loss, LossMeter, OutputPart
from roundoff.diagnosis.margins import RangeMargins, decibel_interval
from roundoff.diagnosis.repair import (
    Fixed,
    RepairSamples,
    RepairSource,
    SampleScores,
    attempts,
    judge_repair,
    repair,
    wants_repair,
    wants_search,
)
from roundoff.diagnosis.repairable_model import EditedModel, edit, retied
from roundoff.diagnosis.result import (
    CostClass,
    Diagnosis,
    Finding,
    Measure,
    Remedy,
    RemedyChange,
    Repair,
    RepairStep,
)
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.diagnosis.subject import open_case
from roundoff.graph.load import load_model
from roundoff.messages.message import verbatim
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.recipes import AddedCost
from roundoff.quantize.targets.files import load_target
from roundoff.samples.sample_set import ArraySamples
from roundoff.search.repair import repair_diagnosis
from tests.diagnosis.planting import biased, changed, demo, for_target, scaled, unbalanced

MEASURE = Measure(verbatim("accuracy"), "", 0.0, 0.0)


@dataclass(frozen=True)
class Toy:
    """A workpiece whose score is the sum of what its changes are worth."""

    made: tuple[str, ...] = ()

    def changed(self, changes: Sequence[RemedyChange]) -> Self | None:
        values = tuple(each.value for each in changes)
        return None if "impossible" in values else replace(self, made=(*self.made, *values))

    def quantized(self) -> Any:
        return self


WORTH = {"good": 0.5, "bad": -0.1, "dear": 0.4, "dearest": 1.0}


DEAR = {"dear": AddedCost(wide=1, bits=16), "dearest": AddedCost(in_float=1)}


@dataclass(frozen=True)
class Scale:
    """Scores toys by what their changes are worth, each sample alike."""

    measure: Measure = MEASURE
    goal: float = 9.0
    spread: float = 0.0

    def score(self, network: Any) -> SampleScores:
        worth = sum(WORTH[each] for each in network.made)
        noise = self.spread * np.array([1.0, -1.0, 1.0, -1.0]) * len(network.made)
        sign = 1 if self.measure.higher_is_better else -1
        return SampleScores(sign * worth, 2 - worth + noise)

    def enough(self, scores: SampleScores) -> bool:
        return abs(scores.value) >= self.goal


def cost_of(before: Any, after: Any) -> AddedCost:
    return DEAR.get(after.made[-1], AddedCost())


def finding(number: int, cost: CostClass, *values: str) -> Finding:
    changes = tuple(RemedyChange("codes", value=each) for each in values)
    return Finding(
        number,
        "clipping",
        ("n",),
        ("t",),
        verbatim("s"),
        remedy=Remedy(verbatim("do it"), cost, changes),
        proven=True,
    )


def tried(findings: list[Finding], scale: Scale | None = None, *, late: bool = False) -> Any:
    return repair(Toy(), attempts(findings), scale or Scale(), cost_of=cost_of, out_of_time=lambda: late)


def test_cheap_remedies_come_first_and_only_what_helps_is_kept() -> None:
    piece, steps = tried([finding(1, "16 bit", "dear"), finding(2, "free", "bad"), finding(3, "free", "good")])
    assert [(step.finding, step.kept, step.why and str(step.why)) for step in steps] == [
        (2, False, "no better"),
        (3, True, None),
        (1, True, None),
    ]
    assert piece.made == ("good", "dear")
    assert (steps[1].measure.after, steps[2].measure.after) == (0.5, 0.9)
    assert [step.cost for step in steps] == ["free", "free", "16 bit"]


def test_nothing_dear_is_tried_when_it_is_good_enough() -> None:
    piece, steps = tried([finding(1, "free", "good"), finding(2, "float", "dearest")], Scale(goal=0.5))
    assert (piece.made, len(steps)) == (("good",), 1)


def test_what_costs_nothing_is_kept_though_it_is_good_enough_already() -> None:
    piece, _ = tried([finding(1, "free", "good"), finding(2, "free", "good")], Scale(goal=0.5))
    assert piece.made == ("good", "good")


def test_bits_are_bought_with_a_gain_that_is_no_chance() -> None:
    piece, steps = tried([finding(1, "16 bit", "dear"), finding(2, "free", "good")], Scale(spread=1.0))
    assert piece.made == ("good",)
    assert [str(step.why) for step in steps if not step.kept] == [
        "better by chance at most, and it costs something"
    ]


def test_what_is_called_free_and_adds_something_is_told_as_it_is() -> None:
    piece, steps = tried([finding(1, "free", "dear")])
    assert (piece.made, steps[0].cost, str(steps[0].added)) == (("dear",), "16 bit", "1 tensor with 16 bits")


def test_what_cannot_be_done_is_said() -> None:
    _, steps = tried([finding(1, "free", "impossible")])
    assert [str(step.why) for step in steps] == ["not possible here"]
    _, steps = tried([finding(1, "free", "good")], late=True)
    assert [str(step.why) for step in steps] == ["no time was left"]


def test_what_is_only_suspected_is_not_tried() -> None:
    _, steps = tried([replace(finding(1, "free", "good"), proven=False)])
    assert steps == ()


def test_a_metric_where_less_is_better_is_told_as_it_is() -> None:
    low = replace(MEASURE, higher_is_better=False)
    _, steps = tried([finding(1, "free", "good")], Scale(low))
    assert (steps[0].measure.before, steps[0].measure.after) == (0, -0.5)
    assert steps[0].kept


def test_changes_become_quantizers() -> None:
    quantized, samples = demo()
    case = open_case(changed(quantized, "block3/relu", scaled(0.1)), samples)
    name = "q:block3/relu"
    # What would cut off values of these samples loses more on them: the range ends where they do.
    seen = case.facts.observed["block3/relu"].range[1]
    wide = edit(case, RemedyChange("range", ("block3/relu",), low=0.0, high=seen / 4))[name]
    assert wide is not None
    assert seen <= float(wide.params.scale) * 255 <= 1.06 * seen
    assert edit(case, RemedyChange("float", ("block3/relu",))) == {name: None}
    bits = edit(case, RemedyChange("bits", ("block3/relu",), value="u16"))[name]
    assert bits is not None
    assert bits.spec.bits == 16
    again = edit(case, RemedyChange("recalibrate"))
    assert set(again) == {each.name for each in quantized.quantizers if each.kind == "activation"}
    assert edit(case, RemedyChange("per_channel", ("block3/relu",))) == {}
    assert edit(case, RemedyChange("report", ("block3/relu",))) == {}


def test_biases_follow_the_scales_they_are_told_in() -> None:
    quantized, samples = for_target(*biased())
    case = open_case(quantized, samples)
    bias = next(each for each in quantized.quantizers if each.kind == "bias")
    fixes = retied(case, edit(case, RemedyChange("range", ("x",), low=-20.0, high=20.0)))
    moved = fixes[bias.name]
    entering = fixes["x"] if "x" in fixes else next(each for each in fixes.values() if each and each.tensor == "x")
    weight = next(each for each in quantized.quantizers if each.tensor == "w1")
    assert moved is not None
    assert entering is not None
    assert np.allclose(moved.params.scale, entering.params.scale * weight.params.scale)
    assert retied(case, {weight.name: None})[bias.name] is None


def test_an_unknown_tensor_changes_nothing() -> None:
    case = open_case(*for_target(*unbalanced(1.0)))
    assert edit(case, RemedyChange("range", ("nobody",), low=0.0, high=1.0)) == {}


# A repair is told by what the samples that were held out can show.


def judged(before: list[float], after: list[float]) -> Any:
    """A repair whose metric has these values on single samples that were held out; in float all are right."""
    names: Any = SimpleNamespace(names=tuple(map(str, range(len(before)))))
    network = SimpleNamespace(float_model="float")
    values = {id(network): before, id("float"): [1.0] * len(before)}

    def score(model: Any, *, held_out: bool = False) -> SampleScores:
        known = np.array(values.get(id(model), after))
        return SampleScores(float(known.mean()), -known)

    step = RepairStep(verbatim("it"), "free", 1, MEASURE, kept=True)
    made: Any = SimpleNamespace()
    fixed: Any = Fixed(made, Repair((step,), ()))
    judge: Any = SimpleNamespace(
        samples=RepairSamples(names, names),
        alike=False,
        measure=replace(MEASURE, samples=len(before)),
        score=score,
    )
    return judge_repair(fixed, RepairSource(network, names), DiagnoseSettings(), judge).repair  # type: ignore[arg-type]


def test_few_samples_do_not_show_that_nothing_is_lost() -> None:
    """None of 33 is wrong any more, and two of a hundred may be on others: no word of a repair."""
    few = judged([0.0] * 6 + [1.0] * 27, [1.0] * 33)
    assert (few.reached, few.proven) == (False, True)
    assert few.interval == (pytest.approx(1 - 0.0582, abs=2e-4), 1.0)
    (doubt,) = few.doubts
    assert str(doubt).startswith(
        "33 samples cannot show that accuracy loses no more than 1 % against float; about 198"
    )
    many = judged([0.0] * 60 + [1.0] * 270, [1.0] * 330)
    assert many.reached
    assert not many.doubts
    assert many.interval[0] >= 0.99


def test_what_is_lost_on_samples_that_were_held_out_is_said() -> None:
    found = judged([0.0] * 200 + [1.0] * 200, [0.0] * 20 + [1.0] * 380)
    assert (found.reached, found.proven) == (False, True)
    assert [str(each) for each in found.doubts] == [
        "accuracy is still less than in float, beyond what may be lost"
    ]


def losses(noise: list[float]) -> Loss:
    """What samples of one output lose, each of energy 100."""
    meter = LossMeter([OutputPart("out")])
    for each in noise:
        meter.add({"out": np.full(1, 10.0)}, {"out": np.full(1, 10.0 + math.sqrt(each))})
    return meter.loss()


def told_of_decibels(held: list[float], unseen: list[float] | None = None) -> Repair:
    """A repair with which samples that were held out lose so much, and ten times as much before.

    Args:
        held: What they lose.
        unseen: What all samples lose by networks that do not know them; None where that was not measured.
    """
    names: Any = [SimpleNamespace(names=("a", "b", "c", "d", "e")), SimpleNamespace(names=tuple(map(str, held)))]
    network, made = SimpleNamespace(float_model=None, quantizers=()), SimpleNamespace()

    def score(model: Any, *, held_out: bool = False) -> SampleScores:
        loss = losses([each * (10 if model is network else 1) for each in held])
        return SampleScores(loss.sqnr_db, np.array(loss.by_sample), True, loss)

    step = RepairStep(verbatim("it"), "free", 1, MEASURE, kept=True)
    judge: Any = SimpleNamespace(
        samples=RepairSamples(*names), alike=False, measure=replace(MEASURE, unit="dB", samples=5), score=score
    )
    fixed: Any = Fixed(made, Repair((step,), ()))  # type: ignore[arg-type]
    source = RepairSource(network, names[0])  # type: ignore[arg-type]
    every: Any = None
    if unseen is not None:
        before = losses([10 * each for each in unseen])
        every = SimpleNamespace(before=lambda model: before, after=lambda: losses(unseen), turns=6)
    return judge_repair(fixed, source, DiagnoseSettings(), judge, unseen=every).repair


def decibels(noise: list[float]) -> float:
    return 10 * math.log10(100 * len(noise) / sum(noise))


def test_the_figure_is_of_samples_that_were_held_out() -> None:
    held = [1.4, 1.1, 2.0, 1.6]
    found = told_of_decibels(held)
    (one,) = found.measures
    assert (one.before, one.after) == pytest.approx((decibels(held) - 10, decibels(held)))
    assert (one.samples, found.held_out, found.used) == (4, 4, 5)
    assert found.interval == pytest.approx(decibel_interval(losses(held)))


def test_the_figure_is_of_all_samples_where_each_is_measured_by_what_does_not_know_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roundoff.diagnosis.repair.switch_on", lambda *parts: None)
    held, unseen = [1.4, 1.1, 2.0, 1.6], [1.0, 2.0, 1.5, 1.2, 2.2, 1.4, 1.1, 2.0, 5.0]
    found = told_of_decibels(held, unseen)
    (one,) = found.measures
    assert (one.before, one.after) == pytest.approx((decibels(unseen) - 10, decibels(unseen)))
    assert (one.samples, found.held_out, found.used) == (9, 4, 5)
    assert found.interval == pytest.approx(decibel_interval(losses(unseen), turns=6))


def test_a_given_file_is_measured_on_all_samples_by_ranges_that_do_not_know_them() -> None:
    quantized, samples = demo()
    tensor = [each.tensor for each in quantized.quantizers if each.kind == "activation"][4]
    given, how = changed(quantized, tensor, scaled(0.1)), DiagnoseSettings()
    fixed = repair_diagnosis(diagnose_quantization(given, samples, how), RepairSource(given, samples), how)
    assert fixed is not None
    done, total = fixed.repair, len(samples.names)
    assert (done.used + done.held_out, done.measures[0].samples) == (total, total)


def test_corrected_biases_of_a_given_file_stay_when_ranges_get_a_margin() -> None:
    quantized, samples = demo()
    case = open_case(quantized, samples)
    corrected = EditedModel(case).changed([RemedyChange("correction", step=Step("bias_correct"))])
    assert corrected is not None
    opened = open_case(corrected.quantized(), samples)
    margins = RangeMargins(opened, ())
    fixes = margins.fixes(wide=True)
    before, after = (
        {each.name: each for each in some} for some in (opened.quantizers(), opened.quantizers(fixes))
    )
    moved = [name for name, each in fixes.items() if each is not None and each.kind == "bias"]
    assert moved
    for name in moved:
        ours, theirs = (
            dequantize(codes, each.params, each.spec.axis)
            for each in (before[name], after[name])
            if (codes := each.codes) is not None
        )
        np.testing.assert_allclose(ours, theirs, atol=float(after[name].params.scale.max()))


def test_the_calibration_of_the_user_is_kept_where_it_was_not_at_fault() -> None:
    """Percentiles, and one weight that is cut off: no range is found anew, no other weight is touched."""
    model, (images, _) = load_model(model_path()), load_split("test")
    samples = ArraySamples({model.proto.graph.input[0].name: images[:40]})
    settings = QuantizeSettings(load_target("generic-int8"), methods=("percentile",))
    calibrated = quantize_model(model, samples, settings).quantized
    weights = [each.tensor for each in calibrated.quantizers if each.kind == "weight"]
    broken = weights[len(weights) // 2]
    given, how = changed(calibrated, broken, scaled(0.2)), DiagnoseSettings()
    fixed = repair_diagnosis(diagnose_quantization(given, samples, how), RepairSource(given, samples), how)
    assert fixed is not None
    assert any(step.kept for step in fixed.repair.steps)
    after = {each.name: each for each in fixed.quantized.quantizers}
    kept = [each for each in given.quantizers if each.kind == "activation"]
    assert kept
    for each in kept:
        # Percentiles cut off a little of the samples: a margin may be added, and nothing is taken away.
        ours, theirs = (representable_range(one.params, one.spec) for one in (after[each.name], each))
        step = float(each.params.scale.max())
        assert ours[0] <= theirs[0] + step, each.name
        assert theirs[1] - step <= ours[1] <= 2 * theirs[1] + step, each.name
    others = [each for each in given.quantizers if each.kind == "weight" and each.tensor != broken]
    assert all(np.array_equal(after[each.name].params.scale, each.params.scale) for each in others)
    assert fixed.repair.measures[0].improved


def test_one_sample_given_many_times_says_nothing_of_others() -> None:
    """An interval of copies is no width at all: the figure is told without one, and the gain is not proven."""
    quantized, samples = for_target(*biased())
    wide = changed(quantized, "r2", scaled(0.1))
    rng = np.random.default_rng(7)
    one = samples.feed(0)["x"]
    for copies in (np.repeat(one, 20, axis=0), one + 1e-6 * rng.standard_normal((20, *one.shape[1:]))):
        alike = ArraySamples({"x": copies.astype(np.float32)})
        found = diagnose_quantization(wide, alike)
        assert found.judgement is not None
        assert "repeated" in {each.kind for each in found.judgement.doubts}
        fixed = repair_diagnosis(found, RepairSource(wide, alike), DiagnoseSettings())
        assert fixed is not None
        done = fixed.repair
        assert done.measures[0].improved
        assert (done.interval, done.gain, done.proven, done.reached) == (None, None, False, False)


def test_the_range_that_is_told_is_the_one_that_is_written() -> None:
    quantized, samples = for_target(*biased())
    narrow = changed(quantized, "r2", scaled(0.2))
    fixed = repair_diagnosis(
        diagnose_quantization(narrow, samples), RepairSource(narrow, samples), DiagnoseSettings()
    )
    assert fixed is not None
    (told,) = [
        dict(each.title.arguments) for each in fixed.repair.steps if each.title.key == "diagnosis.set_range"
    ]
    written = next(each for each in fixed.quantized.quantizers if each.tensor == "r2")
    assert (told["low"], told["high"]) == pytest.approx(reach(written))
    observed = open_case(quantized, samples).facts.observed["r2"].range
    assert reach(written)[1] > 1.04 * observed[1]


@pytest.mark.parametrize(
    ("kind", "grade", "doubts", "wanted"),
    [
        ("distributed", "lossy", (), True),
        ("not_enough_evidence", "lossy", (), True),
        ("not_enough_evidence", "lossy", (Doubt("repeated"),), False),
        ("not_enough_evidence", "no_evidence", (), False),
        ("not_enough_evidence", "incomplete", (), False),
        ("elsewhere", "lossy", (), False),
        ("healthy", "fine", (), False),
    ],
)
def test_a_loss_without_a_known_cause_is_repaired_where_the_samples_show_it(
    kind: Any, grade: Any, doubts: tuple[Doubt, ...], wanted: bool
) -> None:
    judgement = Judgement(grade, Coverage(OutputCoverage(("y",))), doubts)
    found = Diagnosis("m", verbatim(""), "quantization", kind, verbatim("v"), judgement=judgement)
    assert wants_repair(found) is wanted
    # What costs nothing is tried first: a search alone is for a loss that is known to have no single place.
    assert wants_search(found) is (kind == "distributed")
