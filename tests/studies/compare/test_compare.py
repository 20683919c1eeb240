"""A comparison as a whole: scores over samples, judgement, culprits, order, and rows that have no score."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from roundoff.align.pairing import Layout, Pairing, TensorPair
from roundoff.core.coverage import CoverageGap, LeftOut, OutputCoverage, Share, Unjudged
from roundoff.core.tensors import Array, NodeInfo, Topology
from roundoff.errors import CannotAlign
from roundoff.graph.interface import OutputPart
from roundoff.measure.metrics import score
from roundoff.measure.pairs import measure_pair
from roundoff.measure.verdicts import load_profile, parse_thresholds
from roundoff.studies.compare.result import Comparison, TensorComparison
from roundoff.studies.compare.study import CompareSettings, compare
from tests.sources import MemorySource, in_samples

NAMES = ("x", "a", "b", "y")
CHAIN = Topology(
    nodes=tuple(NodeInfo(f"node {out}", "Conv", (into,), (out,)) for into, out in itertools.pairwise(NAMES)),
    inputs=("x",),
    outputs=("y",),
)

JUDGED = CompareSettings(topology=CHAIN)


def tensors(seed: int = 0, shape: tuple[int, ...] = (1, 4, 6, 6)) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name in NAMES}


def source(*samples: dict[str, Array], **options: Any) -> MemorySource:
    return in_samples({str(i): sample for i, sample in enumerate(samples)}, **options)


def by_name(*names: str) -> Pairing:
    return Pairing(tuple(TensorPair(name, name) for name in names or NAMES))


def row(comparison: Comparison, name: str) -> TensorComparison:
    return next(row for row in comparison.rows if row.reference == name)


def test_equal_tensors_pass() -> None:
    good = source(tensors())
    found = compare(good, good, by_name())
    assert (found.verdict.compared, found.verdict.passed, found.verdict.failed) == (4, 4, 0)
    assert found.verdict.first_divergence is None
    assert all(row.passed and row.kind == "" for row in found.rows)
    assert found.thresholds.name == "default"
    assert not found.verdict.gated


def test_scores_of_several_samples_are_those_of_all_their_elements() -> None:
    left, right = [tensors(i) for i in range(3)], [tensors(i + 50) for i in range(3)]
    found = compare(source(*left), source(*right), by_name())
    for name in NAMES:
        joined = [np.concatenate([sample[name] for sample in side]) for side in (left, right)]
        expected = score(measure_pair(*joined, channel_axis=1)).values
        got = row(found, name).score.values
        assert row(found, name).samples == 3
        for metric, value in expected.items():
            assert got[metric] == pytest.approx(value, rel=1e-9), metric


def test_the_error_is_traced_to_where_it_starts() -> None:
    good, bad = tensors(), tensors()
    bad["a"] = bad["a"] * 2
    bad["y"] = bad["y"] + 1
    settings = CompareSettings(thresholds=load_profile("default"), topology=CHAIN)
    found = compare(source(good), source(bad), by_name(), settings=settings)
    assert found.verdict.first_divergence == "a"
    assert (row(found, "a").kind, row(found, "a").role) == ("gain", "introduces")
    # b is right again, so y is a culprit of its own.
    assert (row(found, "y").kind, row(found, "y").role) == ("offset", "introduces")
    bad["b"] = bad["b"] + np.random.default_rng(9).standard_normal(bad["b"].shape).astype(np.float32)
    found = compare(source(good), source(bad), by_name(), settings=settings)
    assert found.verdict.introduces == ("a",)
    assert found.verdict.victims == ("b", "y")
    assert found.verdict.gated
    assert found.verdict.worst[0] in ("a", "b", "y")


def test_without_an_order_no_first_tensor_is_claimed() -> None:
    bad = {name: values + 5 for name, values in tensors().items()}
    found = compare(source(tensors(), ordered=False), source(bad), by_name())
    assert found.verdict.failed == 4
    assert found.verdict.first_divergence is None


def test_rows_that_cannot_be_scored_keep_their_place_and_reason() -> None:
    bad = tensors()
    bad["a"] = bad["a"][:, :2]
    found = compare(source(tensors()), source(bad, broken=("b",)), by_name())
    assert row(found, "a").score.status == "shape"
    assert row(found, "a").score.detail == "1x4x6x6 against 1x2x6x6 (sample 0)"
    assert row(found, "b").score.status == "unreadable"
    assert row(found, "b").score.detail == "b is truncated. (sample 0)"
    assert (found.verdict.compared, found.verdict.failed) == (2, 2)


def test_nan_on_both_sides_is_agreement_and_on_one_is_not() -> None:
    left, right = tensors(), tensors()
    left["a"][0, 0, 0, 0] = right["a"][0, 0, 0, 0] = np.nan
    right["b"][0, 0, 0, 0] = np.inf
    found = compare(source(left), source(right), by_name())
    assert (row(found, "a").score.status, row(found, "a").passed) == ("nonfinite", True)
    assert (row(found, "b").score.status, row(found, "b").passed) == ("nonfinite", False)
    assert row(found, "b").kind == "nonfinite"


def test_a_hidden_swap_of_axes_is_undone_and_named() -> None:
    bad = tensors()
    bad["b"] = np.ascontiguousarray(bad["b"].transpose(0, 1, 3, 2))
    found = compare(source(tensors()), source(bad), by_name())
    assert row(found, "b").layout == "axes 2,3 swapped"
    assert row(found, "b").score.values["mse"] == 0
    # One tensor alone is a fault; where all are stored like that it is a way of storing.
    assert (row(found, "b").passed, row(found, "b").kind) == (False, "layout")
    everything = {name: np.ascontiguousarray(values.transpose(0, 1, 3, 2)) for name, values in tensors().items()}
    assert compare(source(tensors()), source(everything), by_name()).verdict.failed == 0


@pytest.mark.parametrize(("inner", "failed"), [("b", 1), ("y", 0)])
def test_one_tensor_inside_that_is_stored_channels_last_fails(inner: str, failed: int) -> None:
    stored = tensors()
    stored[inner] = np.ascontiguousarray(stored[inner].transpose(0, 2, 3, 1))
    layout = Layout("NHWC -> NCHW", axes=(0, 3, 1, 2))
    pairing = Pairing(tuple(TensorPair(name, name, layout=layout if name == inner else None) for name in NAMES))
    found = compare(source(tensors()), source(stored), pairing, settings=JUDGED)
    # At the ends of a network a chip has its own way of storing.
    assert (found.verdict.failed, row(found, inner).kind) == (failed, "layout" if failed else "")
    if failed:
        assert str(row(found, inner).difference) == "NHWC -> NCHW, in this tensor alone"
        assert found.verdict.first_divergence == inner


def test_a_layout_is_applied_before_scoring() -> None:
    stored = {name: np.ascontiguousarray(values.transpose(0, 2, 3, 1)) for name, values in tensors().items()}
    layout = Layout("NHWC -> NCHW", axes=(0, 3, 1, 2))
    pairing = Pairing(tuple(TensorPair(name, name, layout=layout) for name in NAMES))
    found = compare(source(tensors()), source(stored), pairing)
    assert found.verdict.passed == 4
    assert row(found, "a").shapes == ((1, 4, 6, 6), (1, 6, 6, 4))


def test_a_profile_for_outputs_judges_outputs_only() -> None:
    bad = {name: values + 5 for name, values in tensors().items()}
    settings = CompareSettings(thresholds=load_profile("axera"), topology=CHAIN)
    found = compare(source(tensors()), source(bad), by_name(), settings=settings)
    assert [row.passed for row in found.rows] == [None, None, None, False]
    # Unjudged rows still say what is wrong with them.
    assert row(found, "a").kind == "offset"
    unknown = compare(source(tensors()), source(bad), by_name(), settings=replace(settings, topology=None))
    assert unknown.verdict.failed == 4
    assert "all were judged" in str(unknown.notes[0])


def test_thresholds_decide() -> None:
    bad = {name: values * np.float32(1.2) for name, values in tensors().items()}
    for text, passes in (("cosine=0.999", True), ("norm_error=0.1", False), ("cosine=0.9,sqnr_db=13", True)):
        settings = CompareSettings(thresholds=parse_thresholds(text))
        found = compare(source(tensors()), source(bad), by_name(), settings=settings)
        assert (found.verdict.failed == 0) == passes, text


def test_samples_pair_by_name_then_by_position() -> None:
    one, two = tensors(1), tensors(2)
    left = in_samples({"cat": one, "dog": two})
    swapped = in_samples({"dog": two, "cat": one, "eel": one})
    found = compare(left, swapped, by_name())
    assert found.verdict.failed == 0
    assert found.samples == ("cat", "dog")
    assert tuple(map(str, found.notes)) == ("2 samples are on both sides; 1 are on one side only",)
    other = in_samples({"0": one, "1": two})
    assert "paired by position" in str(compare(left, other, by_name()).notes[0])
    with pytest.raises(CannotAlign, match="No sample name is on both sides: 'cat', 'dog' in memory"):
        compare(left, in_samples({"0": tensors(3)}), by_name())
    # Told by what was fed, where it is the same.
    told = compare(left, in_samples({"0": two}), by_name())
    assert (told.samples, told.verdict.failed) == (("dog",), 0)
    assert str(told.notes[0]) == "1 sample is the same on both sides by what was fed; 1 without a partner"
    assert told.judgement is not None
    assert told.judgement.coverage.samples == Share(2, 1, (LeftOut("unmatched", 1),))


def test_without_an_output_nothing_passes() -> None:
    settings = CompareSettings(thresholds=load_profile("axera"), topology=CHAIN)
    pairing = Pairing(tuple(TensorPair(name, name) for name in NAMES[:-1]), unmatched_reference=("y",))
    found = compare(source(tensors()), source(tensors()), pairing, settings=settings)
    assert (found.verdict.failed, found.verdict.missing_outputs) == (0, ("y",))
    assert found.state == "incomplete"
    assert found.outputs == OutputCoverage((), (Unjudged("y", "missing"),))
    assert found.notes == ()


def test_what_is_left_may_be_the_output_that_is_not_matched() -> None:
    other = {("z" if name == "y" else name): array for name, array in tensors().items()}
    pairs = tuple(TensorPair(name, name) for name in NAMES[:-1])
    found = compare(source(tensors()), source(other), Pairing(pairs, ("y",), ("z",)), settings=JUDGED)
    assert found.outputs == OutputCoverage((), (Unjudged("y", "unmatched"),))
    assert found.state == "incomplete"


def test_an_output_of_another_shape_or_with_nan_is_not_judged() -> None:
    other = tensors() | {"y": np.zeros((1, 4, 5, 5), np.float32)}
    found = compare(source(tensors()), source(other), by_name(), settings=JUDGED)
    assert found.outputs is not None
    assert [(each.name, each.why) for each in found.outputs.not_judged] == [("y", "shape")]
    assert found.state == "fail"
    lost = tensors()
    lost["y"][0, 0, 0, 0] = np.nan
    found = compare(source(lost), source(lost), by_name(), settings=JUDGED)
    assert found.outputs is not None
    assert [(each.name, each.why) for each in found.outputs.not_judged] == [("y", "nonfinite")]
    assert (found.verdict.failed, found.state) == (0, "incomplete")


def test_what_an_output_only_forwards_is_judged_in_its_place() -> None:
    nodes = (NodeInfo("P", "Conv", ("x",), ("a",)), NodeInfo("F", "Flatten", ("a",), ("y",)))
    settings = replace(JUDGED, thresholds=load_profile("horizon"), topology=Topology(nodes, ("x",), ("y",)))
    assert settings.thresholds is not None
    settings = replace(settings, thresholds=replace(settings.thresholds, scope="outputs"))
    wrong = tensors() | {"a": tensors(7)["a"]}
    for other, state in ((tensors(), "pass"), (wrong, "fail")):
        found = compare(source(tensors()), source(other), by_name("x", "a"), settings=settings)
        assert found.outputs == OutputCoverage(("y",))
        assert found.state == state


def test_without_the_network_the_last_tensor_is_the_output_and_without_order_any_may_be() -> None:
    def judged(ordered: bool, *unmatched: str) -> tuple[str, list[str]]:
        names = [name for name in NAMES if name not in unmatched]
        pairing = replace(by_name(*names), unmatched_reference=unmatched)
        found = compare(source(tensors(), ordered=ordered), source(tensors()), pairing)
        assert found.outputs is not None
        assert found.outputs.known is ordered
        return found.state, [each.name for each in found.outputs.not_judged]

    assert judged(True, "y") == ("incomplete", ["y"])
    assert judged(True, "a") == ("pass", [])
    assert judged(False) == ("pass", [])
    assert judged(False, "a") == ("incomplete", ["a"])


def test_integer_codes_are_called_codes() -> None:
    codes = {name: np.round(values / 0.05 + 3).astype(np.int8) for name, values in tensors().items()}
    found = compare(source(tensors()), source(codes), by_name())
    assert row(found, "a").kind == "codes"
    assert str(row(found, "a").difference) == "codes that were not dequantized (scale about 0.05, zero 3)"


def test_names_on_other_tensors_are_told() -> None:
    good = tensors()
    pairing = Pairing((TensorPair("a", "b", "value"),), ("x", "b", "y"))
    found = compare(source(good), source({"b": good["a"]}), pairing)
    note = "1 names of the candidate are on other tensors, judged by their values: its b is the reference's a"
    assert tuple(map(str, found.notes)) == (note,)


def test_unmatched_tensors_stay_in_the_result() -> None:
    pairing = Pairing((TensorPair("x", "x"),), ("a", "b"), ("extra",))
    found = compare(source(tensors()), source(tensors()), pairing)
    assert found.unmatched_reference == ("a", "b")
    assert found.unmatched_candidate == ("extra",)


def test_what_a_verdict_rests_on_is_counted() -> None:
    pairing = Pairing(tuple(TensorPair(name, name) for name in ("x", "y")), ("a", "b"), ("z",))
    wrong = tensors() | {"y": tensors(7)["y"], "z": tensors(8)["x"]}
    found = compare(source(tensors()), source(wrong), pairing, settings=JUDGED)
    assert found.judgement is not None
    coverage = found.judgement.coverage
    assert coverage.tensors is not None
    assert (coverage.tensors.there, coverage.tensors.judged) == (4, 2)
    assert [(each.why, each.count) for each in coverage.tensors.left_out] == [("unmatched", 2)]
    assert coverage.files is not None
    assert (coverage.files.there, coverage.files.judged, coverage.files.left_out[0].names) == (5, 4, ("z",))
    assert coverage.gap == CoverageGap("x", "y", 2)
    assert found.judgement.grade == "lossy"
    whole = compare(source(tensors()), source(tensors()), by_name(), settings=JUDGED).judgement
    assert whole is not None
    assert (whole.grade, whole.coverage.gap) == ("fine", None)


def test_indices_are_judged_by_the_share_that_is_equal() -> None:
    rng = np.random.default_rng(5)
    ours = {"x": tensors()["x"], "y": rng.integers(0, 1000, (100,))}
    few, many = ours["y"].copy(), ours["y"].copy()
    few[:4], many[:30] = 999 - few[:4], 999 - many[:30]
    pairs = by_name("x", "y")
    for other, state in ((few, "pass"), (many, "fail")):
        assert compare(source(ours), source(ours | {"y": other}), pairs).state == state
    # Who asks for a distance gets it.
    strict = CompareSettings(thresholds=parse_thresholds("max_abs_error=0"))
    assert compare(source(ours), source(ours | {"y": few}), pairs, settings=strict).state == "fail"


def test_samples_that_can_show_no_fault_give_no_good_verdict() -> None:
    zero = tensors() | {"x": np.zeros_like(tensors()["x"])}
    found = compare(source(zero), source(zero), by_name(), settings=JUDGED)
    assert found.judgement is not None
    assert (found.state, [each.kind for each in found.judgement.doubts]) == ("no_evidence", ["constant"])
    dead = {name: np.zeros_like(array) for name, array in tensors().items()}
    found = compare(source(dead), source(dead), by_name(), settings=CompareSettings())
    assert found.state == "no_evidence"
    lost = tensors() | {"x": np.full_like(tensors()["x"], np.nan)}
    found = compare(source(lost), source(lost), by_name(), settings=JUDGED)
    assert found.judgement is not None
    assert (found.state, [each.kind for each in found.judgement.doubts]) == ("no_evidence", ["nonfinite_inputs"])


def test_nobody_is_blamed_for_nan_that_was_fed_and_the_other_samples_are_judged() -> None:
    fed = [tensors(seed) for seed in range(4)]
    ours = [*fed[:2], {name: np.full_like(each, np.nan) for name, each in fed[2].items()}, fed[3]]
    found = compare(source(*ours), source(*fed), by_name(), settings=JUDGED)
    assert (found.state, found.verdict.failed, found.verdict.introduces) == ("no_evidence", 0, ())
    assert found.judgement is not None
    assert [(each.kind, each.count, each.name) for each in found.judgement.doubts] == [
        ("nonfinite_inputs", 1, "2")
    ]
    assert found.judgement.coverage.samples == Share(4, 3, (LeftOut("nonfinite", 1),))
    assert (found.samples, row(found, "y").samples) == (("0", "1", "3"), 3)
    # A fault in what is finite stays one.
    wrong = [each | {"b": -each["b"]} for each in fed]
    found = compare(source(*ours), source(*wrong), by_name(), settings=JUDGED)
    assert (found.state, found.verdict.introduces) == ("fail", ("b",))
    # With nothing finite there is nothing to judge, and nothing that the candidate lacks.
    found = compare(source(ours[2]), source(fed[2]), by_name(), settings=JUDGED)
    assert (found.state, found.rows, found.verdict.missing_outputs) == ("no_evidence", (), ())
    assert found.outputs is not None
    assert [each.why for each in found.outputs.not_judged] == ["nonfinite"]


def test_half_of_what_was_fed_gives_no_good_verdict() -> None:
    fed = [tensors(seed) for seed in range(4)]
    found = compare(source(*fed), source(*fed[:2]), by_name(), settings=JUDGED)
    assert found.judgement is not None
    assert [(each.kind, each.count, each.of) for each in found.judgement.doubts] == [("lacking", 2, 4)]
    assert not found.judgement.good
    # Of two dumps one may hold more.
    assert compare(source(*fed), source(*fed[:2]), by_name()).state == "pass"


def test_an_output_with_more_error_than_it_varies_by() -> None:
    """Scores of which the mean is all that is left keep every usual limit."""
    ours = tensors() | {"y": 0.5 + 0.05 * tensors()["y"]}
    theirs = ours | {"y": np.roll(ours["y"], 1, axis=1)}
    settings = replace(JUDGED, parts=(OutputPart("y"),))
    found = compare(source(ours), source(theirs), by_name(), settings=settings)
    assert row(found, "y").score.values["cosine"] > 0.99
    assert (found.state, row(found, "y").kind) == ("fail", "part")
    noisy = ours | {"y": (ours["y"] + 0.02 * tensors(1)["y"]).astype(np.float32)}
    assert compare(source(ours), source(noisy), by_name(), settings=settings).state == "pass"


def test_without_a_network_the_last_tensor_has_to_keep_its_values() -> None:
    """As diagnose counts them: of all samples, of each, of channels along either axis, and beside a large mean."""
    first, scores = tensors(), np.random.default_rng(3).normal(2.3, 0.2, (1, 40, 6)).astype(np.float32)
    ours = {"x": first["x"], "y": scores}
    kept = scores + np.float32(0.01) * np.random.default_rng(4).standard_normal(scores.shape).astype(np.float32)
    assert compare(source(ours), source(ours | {"y": kept}), by_name("x", "y")).state == "pass"
    column = scores.copy()
    column[:, :, 2] = np.where(np.arange(40) % 2, 2.2, 2.4)
    for lost in (np.round(scores * 2) / 2, np.roll(scores, 1, axis=1), column):
        found = compare(source(ours), source(ours | {"y": lost}), by_name("x", "y"))
        assert row(found, "y").score.values["cosine"] > 0.98
        assert (found.state, row(found, "y").kind) == ("fail", "part")
    loose = replace(source(ours), ordered=False)
    assert compare(loose, source(ours | {"y": np.round(scores * 2) / 2}), by_name("x", "y")).state == "fail"


def test_what_is_cropped_is_padding_in_every_sample() -> None:
    wide = [np.pad(tensors(seed)["y"], ((0, 0), (0, 4), (0, 0), (0, 0))) for seed in range(2)]
    pairs = Pairing((TensorPair("y", "y", layout=Layout("axis 1 padded 4 -> 8", crop=(1, 4, 6, 6))),))
    ours = source(*({"y": tensors(seed)["y"]} for seed in range(2)))
    assert compare(ours, source(*({"y": each} for each in wide)), pairs).state == "pass"
    wide[1][0, 6] = 1.0
    found = compare(ours, source(*({"y": each} for each in wide)), pairs)
    assert (found.state, row(found, "y").score.status) == ("fail", "shape")
    assert "no padding" in row(found, "y").score.detail


def test_copies_of_the_candidate_are_counted_apart() -> None:
    theirs = source(tensors() | {"y_int8": tensors()["y"], "z": np.zeros(3)})
    pairing = replace(by_name(), unmatched_candidate=("z", "y_int8"), copies={"y_int8": "y"})
    found = compare(source(tensors()), theirs, pairing, settings=JUDGED)
    assert found.judgement is not None
    files = found.judgement.coverage.files
    assert files is not None
    assert (files.there, files.judged) == (6, 4)
    assert [(each.why, each.names) for each in files.left_out] == [("not_placed", ("z",)), ("copy", ("y_int8",))]
    assert [each.name for each in found.judgement.coverage.unplaced] == ["z"]
