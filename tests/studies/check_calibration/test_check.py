"""Planted faults are found, clean sets are not accused."""

import itertools
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.studies.check_calibration.findings import influence_findings
from roundoff.studies.check_calibration.page import _converged
from roundoff.studies.check_calibration.result import CheckFinding, RangeRow
from tests.studies.check_calibration.sets import check, images, kinds, normalized_net


@pytest.mark.parametrize("seed", range(30))
def test_clean_sets_are_not_accused(seed: int) -> None:
    count = (24, 32, 64)[seed % 3]
    values = images(count, seed)
    if seed % 5 == 4:
        values = np.random.default_rng(seed).standard_normal((count, 3, 8, 8)).astype(np.float32)
    model = normalized_net() if seed % 2 else None
    if model is not None:
        values = (images(count, seed) - np.float32(0.3)) / np.float32(0.25)
    method = ("", "percentile", "mse")[seed % 3]
    others = None if seed % 4 else (images(20, seed + 1000) if model is None and seed % 5 != 4 else None)
    labels = np.arange(count) % 10 if seed % 2 else None
    found = check(values, model=model, method=method, others=others, labels=labels)
    assert found.findings == () or found.passed, [str(finding.text) for finding in found.faults]


def _noisy(values: Array, size: float) -> Array:
    return (values + np.random.default_rng(1).standard_normal(values.shape) * size).astype(np.float32)


def _with(place: Any, value: Any) -> Array:
    values = images(32)
    values[place] = value
    return values


PLANTED = {
    "nan": lambda: _with((3, 0, 2, 2), np.nan),
    "inf": lambda: _with((3, 0, 2, 2), np.inf),
    "zero": lambda: _with(5, 0),
    "constant": lambda: _with(5, 0.4),
    "almost constant": lambda: _with(5, 0.4 + 0.001 * images(32)[5]),
    "copies": lambda: _with(slice(20, 24), images(32)[:4]),
    "near copies": lambda: _with(slice(20, 24), _noisy(images(32)[:4], 0.003)),
    "one scene": lambda: _noisy(np.repeat(images(1), 32, axis=0), 0.001),
    "not divided": lambda: _with(7, images(32)[7] * 255),
    "divided again": lambda: _with(slice(7, 9), images(32)[7:9] / 255),
    "outlier": lambda: _with((9, 1, 4, 4), 40),
    "few": lambda: images(4),
    "one": lambda: images(1),
}


@pytest.mark.parametrize(
    ("fault", "kind", "samples"),
    [
        ("nan", "nonfinite", ("3",)),
        ("inf", "nonfinite", ("3",)),
        ("zero", "blank", ("5",)),
        ("constant", "blank", ("5",)),
        ("almost constant", "blank", ("5",)),
        ("copies", "duplicates", ("0", "20", "1", "21", "2", "22", "3", "23")),
        ("near copies", "duplicates", ("0", "20", "1", "21", "2", "22", "3", "23")),
        ("one scene", "duplicates", ()),
        ("not divided", "scaling", ("7",)),
        ("divided again", "scaling", ("7", "8")),
        ("outlier", "influence", ("9",)),
        ("few", "too_few", ()),
        ("one", "too_few", ()),
    ],
)
def test_a_planted_fault_is_found(fault: str, kind: str, samples: tuple[str, ...]) -> None:
    found = check(PLANTED[fault]())
    assert not found.passed
    finding = next(finding for finding in found.faults if finding.kind == kind)
    assert finding.samples == samples
    assert finding.fix
    # What follows from the fault itself may be named too, but no other kind of fault.
    allowed = {"not divided": {"scaling", "influence"}, "outlier": {"scaling", "influence"}}
    assert kinds(found) <= allowed.get(fault, {kind}), [each.text for each in found.faults]


def test_an_outlier_does_not_lead_methods_that_cut_it_off() -> None:
    found = check(PLANTED["outlier"](), method="percentile")
    assert "influence" not in kinds(found)
    assert "influence" in {finding.kind for finding in found.findings}


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_samples_of_another_kind_exceed_the_ranges(method: str) -> None:
    dark, bright = images(32) * np.float32(0.4), images(24, seed=7)
    found = check(dark, others=bright, method=method)
    assert "saturation" in kinds(found)
    finding = next(finding for finding in found.faults if finding.kind == "saturation")
    assert "image" in finding.tensors
    row = next(row for row in found.ranges if row.tensor == "image")
    share = float(np.mean(bright > row.high))
    assert row.outside == pytest.approx(share)
    assert found.held_out_samples == 24


def test_samples_unlike_all_others_are_named() -> None:
    random = np.random.default_rng(0)
    strange = np.clip(random.uniform(0, 1, (20, 3, 1, 1)) + random.choice([0, 0.9], (20, 3, 8, 8)), 0, 1)
    found = check(images(40), others=strange.astype(np.float32))
    assert "coverage" in kinds(found)


def test_held_out_samples_of_the_set_itself_prove_nothing() -> None:
    values = images(32)
    found = check(values, others=values[:5])
    assert any("are in the set, too: 0, 1, 2 and 2 more" in str(finding.text) for finding in found.findings)
    assert found.passed


def test_a_set_on_another_scale_than_held_out_samples() -> None:
    found = check(images(32), others=images(20, seed=3) * 255)
    assert any("0.0" not in str(f.text) and f.kind == "scaling" for f in found.faults)
    # What follows from it is left out: more samples would be the wrong advice.
    assert not {"saturation", "coverage"} & {fault.kind for fault in found.faults}
    assert any(
        str(note).startswith("whether ranges hold for held-out samples is not judged") for note in found.notes
    )


def test_classes_are_those_of_the_model_though_its_batch_has_no_size() -> None:
    found = check(images(40), model=normalized_net(), labels=np.arange(40) % 4)
    assert any("no sample of 6 classes of 10: 4, 5, 6" in str(finding.text) for finding in found.findings)


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        (lambda x: x, "subtract about 0.3"),
        (lambda x: x * 255, "subtract about 8"),
        (lambda x: (x - 0.3) / 0.25 / 255, "multiply them by 255"),
        (lambda x: (x - 0.3) / 0.25 * 255, "divide them by 255"),
    ],
)
def test_what_batch_normalization_saw_in_training_tells_a_slip(slip: object, words: str) -> None:
    values = slip(images(32).astype(np.float64)).astype(np.float32)  # type: ignore[operator]
    found = check(values, model=normalized_net())
    findings = [finding for finding in found.findings if "batch normalization (Norm1)" in str(finding.text)]
    assert len(findings) == 1
    assert words in str(findings[0].fix)


def test_right_answers_tell_a_slip() -> None:
    from roundoff import demo
    from roundoff.graph.load import load_model
    from roundoff.quantize.targets.files import load_target
    from roundoff.samples.sample_set import ArraySamples
    from roundoff.studies.check_calibration.ranges import CalibrationCheckSettings
    from roundoff.studies.check_calibration.study import check_calibration

    values, labels = demo.load_split("calibration")
    model, settings = load_model(demo.model_path()), CalibrationCheckSettings(load_target("generic-int8"))
    right = check_calibration(model, ArraySamples({"image": values}), settings, labels=labels)
    assert right.passed, [str(finding.text) for finding in right.faults]
    wrong = check_calibration(
        model, ArraySamples({"image": values * 0 + (values + 1) * 127.5}), settings, labels=labels
    )
    assert any("the float model is right on" in str(finding.text) for finding in wrong.faults)


def test_classes_that_are_missing() -> None:
    labels = np.arange(40) % 10
    labels[labels == 3] = 4
    found = check(images(40), labels=labels)
    texts = [str(finding.text) for finding in found.faults]
    assert texts == ["no sample of 1 class of 10: 3"]
    assert found.classes is not None
    assert "3" not in found.classes
    few = check(images(20), labels=labels[:20])
    assert few.passed
    assert [finding.kind for finding in few.findings] == ["coverage"]


def test_one_class_that_outweighs_all() -> None:
    labels = np.arange(60) % 10
    labels[10:50] = 2
    found = check(images(60), labels=labels)
    assert any("of 60 samples are of class 2" in str(finding.text) for finding in found.faults)


def test_the_curve_ends_at_all_samples() -> None:
    found = check(images(50))
    assert [point.samples for point in found.curve] == [1, 2, 4, 7, 13, 25, 50]
    assert found.curve[-1].typical == 1.0
    assert all(a.typical <= b.typical for a, b in itertools.pairwise(found.curve))
    assert found.held_out_samples == 10


def test_the_same_twice_gives_the_same() -> None:
    assert check(images(24)) == check(images(24))


def test_labels_must_fit() -> None:
    with pytest.raises(BadInput, match="There are 3 labels for 24 samples"):
        check(images(24), labels=np.zeros(3, np.int64))


def test_names_stay_what_they_are_in_every_language() -> None:
    name = 'conv (3x3); it\'s "odd" and 2 more: values'
    row = RangeRow(name, 0.0, 1.0, 0.5, lone_sample=name, lone_factor=8.0)
    (finding,) = influence_findings([row], ["a", "b", name], exact=True)
    assert str(finding.text) == f"sample {name} alone makes the range of '{name}' 8 times as wide"
    assert finding.text.within("zh") == f"仅样本 {name} 就使 '{name}' 的量程增宽到 8 倍"


def test_one_sample_that_widens_several_ranges_is_told_in_plain_numbers() -> None:
    rows = [
        RangeRow(name, 0.0, 1.0, 0.5, lone_sample="s7", lone_factor=each)
        for name, each in (("x", 598.0), ("y", 9.0))
    ]
    (finding,) = influence_findings(rows, ["s1", "s2", "s7"], exact=True)
    assert str(finding.text) == "sample s7 alone makes the range of 'x' 600 times as wide, and widens 1 more"
    assert finding.text.within("zh") == "仅样本 s7 就使 'x' 的量程增宽到 600 倍\uff0c另有 1 个张量的量程也随之变宽"


def test_findings_of_an_earlier_document_keep_their_english() -> None:
    codec = TypeAdapter(CheckFinding)
    old = codec.validate_python(
        {"kind": "blank", "severity": "fault", "text": "1 sample is constant: 5", "fix": "x"}
    )
    assert (str(old.text), old.text.within("zh")) == ("1 sample is constant: 5",) * 2
    (found,) = [each for each in check(PLANTED["constant"]()).faults if each.kind == "blank"]
    assert codec.validate_python(codec.dump_python(found, mode="json")) == found
    assert found.text.within("zh") == "1 个样本为常量\uff1a5"


def test_how_many_would_do_is_told_of_suitable_samples_alone() -> None:
    good = check(images(64))
    assert good.passed
    bad = check(images(64) * np.float32(255), others=images(20, 1))
    assert bad.faults
    texts = [" ".join(value for _, value in _converged(each)) for each in (good, bad)]
    assert good.enough is None or "would do" in texts[0]
    assert bad.enough is not None
    assert "would do" not in texts[1]
