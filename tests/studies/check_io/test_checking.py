"""The check of whole pipelines."""

import cv2
import numpy as np
import pytest
from pydantic import TypeAdapter

from roundoff.core.tensors import Array
from roundoff.studies.check_io.result import IoCheck, Stage, StageCheck
from roundoff.studies.check_io.study import IoCheckSettings, StageValues, check_io
from roundoff.vendors.pulsar2.config.document import fields_of
from tests.studies.check_io.pictures import STD, fed, natural, normalized, planes

NAMES = ("a", "b")
RNG = np.random.default_rng(0)
ORIGINALS = tuple(natural(RNG, 100, 80) for _ in NAMES)


def stage_of(check: IoCheck, stage: str) -> StageCheck:
    (found,) = (each for each in check.stages if each.stage == stage)
    return found


def both(training: tuple[Array, ...], deployed: tuple[Array, ...]) -> StageValues:
    return StageValues(NAMES, training, deployed)


def small(picture: Array, how: int = cv2.INTER_LINEAR) -> Array:
    result: Array = cv2.resize(picture, (32, 40), interpolation=how)
    return result


def test_stages_have_their_tolerances() -> None:
    values = tuple(np.linspace(0, 1, 20, dtype=np.float32).reshape(1, 20) for _ in NAMES)
    moved = tuple(value + np.float32(5e-4) for value in values)
    stages: dict[Stage, StageValues] = {
        stage: both(values, moved) for stage in ("result", "output", "preprocessed", "original")
    }
    found = check_io(stages)
    assert [(stage.stage, stage.passed) for stage in found.stages] == [
        ("original", False),
        ("preprocessed", False),
        ("output", True),
        ("result", True),
    ]
    assert not found.passed
    assert found.first_failure is not None
    assert found.first_failure.stage == "original"
    assert any("different originals" in str(note) for note in found.notes)
    loose = check_io(stages, IoCheckSettings(input_tolerance=1e-3))
    assert loose.passed
    assert stage_of(loose, "result").max_abs_error == pytest.approx(5e-4, rel=1e-3)


def test_a_filter_is_named_with_the_original() -> None:
    training = tuple(fed(small(p)) for p in ORIGINALS)
    deployed = tuple(fed(small(p, cv2.INTER_NEAREST)) for p in ORIGINALS)
    alone = stage_of(check_io({"preprocessed": both(training, deployed)}), "preprocessed")
    assert alone.explanation is None
    assert alone.excluded
    assert any("--original" in str(note) for note in alone.notes)
    stages: dict[Stage, StageValues] = {
        "original": StageValues(NAMES, ORIGINALS, ()),
        "preprocessed": both(training, deployed),
    }
    found = check_io(stages)
    assert [stage.stage for stage in found.stages] == ["preprocessed"]
    checked = stage_of(found, "preprocessed")
    assert checked.explanation is not None
    assert checked.explanation.kinds == ("resize",)
    assert "training resizes bilinear (OpenCV), the deployed side nearest" in str(
        checked.explanation.changes[0].text
    )
    assert checked.explanation.exact
    assert "resized nearest (OpenCV), in bytes" in map(str, checked.deployed_from_original)
    assert not checked.excluded


def test_a_filter_is_named_where_pixels_are_fed_as_they_are() -> None:
    training = tuple(planes(small(p)).astype(np.float32) for p in ORIGINALS)
    deployed = tuple(planes(small(p, cv2.INTER_NEAREST)).astype(np.float32) for p in ORIGINALS)
    stages: dict[Stage, StageValues] = {
        "original": StageValues(NAMES, ORIGINALS, ()),
        "preprocessed": both(training, deployed),
    }
    checked = stage_of(check_io(stages), "preprocessed")
    assert checked.explanation is not None
    assert checked.explanation.kinds == ("resize",)
    assert checked.explanation.exact


def test_several_things_differ_on_the_way_from_the_original() -> None:
    training = tuple(fed(small(p)) for p in ORIGINALS)
    deployed = tuple(np.ascontiguousarray(small(p, cv2.INTER_AREA)[None, ..., ::-1]) for p in ORIGINALS)
    stages: dict[Stage, StageValues] = {
        "original": both(ORIGINALS, ORIGINALS),
        "preprocessed": both(training, deployed),
    }
    explanation = stage_of(check_io(stages), "preprocessed").explanation
    assert explanation is not None
    assert set(explanation.kinds) == {"resize", "layout", "channel-order", "normalization"}
    numbers = next(change for change in explanation.changes if change.kind == "normalization")
    assert numbers.correction is not None
    fields = "mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]"
    assert str(fields_of(numbers.correction)).startswith(f"{fields} (mean and std on ")


@pytest.mark.parametrize("numbers", ["same", "std missing"])
def test_raw_files_of_another_layout_are_followed_from_the_original(numbers: str) -> None:
    """A raw file is given the shape of its partner: channels last lie under a shape of channels first."""
    training = tuple(fed(small(p)) for p in ORIGINALS)

    def board(picture: Array) -> Array:
        values = normalized(small(picture, cv2.INTER_NEAREST))
        if numbers == "std missing":
            values = values * STD
        return values.astype(np.float32).reshape(training[0].shape)

    deployed = tuple(board(p) for p in ORIGINALS)
    stages: dict[Stage, StageValues] = {
        "original": both(ORIGINALS, ORIGINALS),
        "preprocessed": both(training, deployed),
    }
    explanation = stage_of(check_io(stages), "preprocessed").explanation
    assert explanation is not None
    assert explanation.exact
    assert set(explanation.kinds) == {"resize", "layout"} | ({"normalization"} if numbers != "same" else set())
    corrections = {each.kind: each.correction for each in explanation.changes if each.correction is not None}
    assert str(fields_of(corrections["layout"])) == "src_layout: NHWC, tensor_layout: NCHW"
    if numbers != "same":
        fields = "mean: [0, 0, 0], std: [0.229, 0.224, 0.225] (mean and std on what the deployed side has now)"
        assert str(fields_of(corrections["normalization"])) == fields


def test_placement_and_border_from_the_original() -> None:
    def boxed(picture: Array, value: int) -> Array:
        canvas = np.full((40, 40, 3), value, np.uint8)
        canvas[:, 4:36] = small(picture)
        return canvas

    training = tuple(fed(boxed(p, 114)) for p in ORIGINALS)
    deployed = tuple(fed(cv2.resize(p, (40, 40))) for p in ORIGINALS)
    original = StageValues(NAMES, ORIGINALS, ())
    found = check_io({"original": original, "preprocessed": both(training, deployed)})
    explanation = stage_of(found, "preprocessed").explanation
    assert explanation is not None
    assert explanation.kinds == ("placement",)
    assert "letterboxed, centred, on the deployed side stretched" in str(explanation.changes[0].text)


def test_one_side_alone_is_followed_from_the_original() -> None:
    deployed = tuple(fed(small(p)) for p in ORIGINALS)
    stages: dict[Stage, StageValues] = {
        "original": StageValues(NAMES, ORIGINALS, ()),
        "preprocessed": StageValues(NAMES, (), deployed),
    }
    found = check_io(stages)
    checked = stage_of(found, "preprocessed")
    assert (checked.passed, checked.samples) == (None, 0)
    assert not found.passed
    assert "resized bilinear (OpenCV), in bytes" in map(str, checked.deployed_from_original)
    assert any("only the deployed side" in str(note) for note in checked.notes)


@pytest.mark.parametrize(
    ("value", "lonely", "said"),
    [(np.nan, 0, "no finite value"), (0.0, 0, "all values are 0"), (None, 1, "no partner")],
)
def test_agreement_that_tells_nothing_is_not_called_the_same(value: float | None, lonely: int, said: str) -> None:
    arrays = tuple(fed(small(p)) for p in ORIGINALS)
    if value is not None:
        arrays = tuple(np.full_like(each, value) for each in arrays)
    found = check_io({"preprocessed": StageValues(NAMES, arrays, arrays, lonely=lonely)})
    checked = stage_of(found, "preprocessed")
    assert checked.passed is None
    assert not found.passed
    assert said in str(checked.notes[0])


def test_what_the_stages_say_together() -> None:
    same = tuple(fed(small(p)) for p in ORIGINALS)
    one = tuple(np.arange(12, dtype=np.float32).reshape(1, 12) for _ in NAMES)
    other = tuple(value + RNG.normal(size=value.shape) for value in one)
    model = check_io({"preprocessed": both(same, same), "output": both(one, other)})
    assert any("the model itself differs" in str(note) for note in model.notes)
    post = check_io({"output": both(one, one), "result": both(one, other)})
    assert any("post-processing differs" in str(note) for note in post.notes)


def test_samples_of_different_shapes_are_compared_but_not_searched() -> None:
    training = (np.ones((1, 3, 4, 4)), np.ones((1, 3, 5, 5)))
    deployed = (np.zeros((1, 3, 4, 4)), np.zeros((1, 3, 5, 5)))
    checked = stage_of(check_io({"preprocessed": both(training, deployed)}), "preprocessed")
    assert checked.max_abs_error == 1
    assert any("different shapes" in str(note) for note in checked.notes)


def test_what_comes_nearest_is_told_without_being_claimed() -> None:
    """A shift of one pixel under noise: a filter could have done it, too."""
    training = tuple(fed(p[:, 1:]) for p in ORIGINALS)
    deployed = tuple(fed(p[:, :-1]) + RNG.normal(size=(1, 3, 100, 79)) * 0.02 for p in ORIGINALS)
    checked = stage_of(check_io({"preprocessed": both(training, deployed)}), "preprocessed")
    assert checked.explanation is None
    assert any("nearest, but not proven: " in str(n) and "1 pixel" in str(n) for n in checked.notes)


def test_values_that_are_not_finite_differ_unless_they_are_the_same() -> None:
    odd = np.array([[1.0, np.nan, np.inf, 2.0]])
    same = check_io({"result": StageValues(("a",), (odd,), (odd.copy(),))})
    assert same.passed
    other = check_io({"result": StageValues(("a",), (odd,), (np.array([[1.0, 0.0, np.inf, 2.0]]),))})
    assert stage_of(other, "result").max_abs_error == np.inf


def test_names_stay_what_they_are_in_every_language() -> None:
    name = 'conv (3x3); it\'s "odd", first 2 against 3'
    odd = np.array([[np.nan, 1.0]])
    checked = stage_of(check_io({"result": StageValues((name,), (odd,), (odd + 1,))}), "result")
    told = [note.within("zh") for note in checked.notes]
    assert told == [f"{side}有 1 个样本含 NaN 或无穷值\uff0c首个为 {name}" for side in ("训练侧", "部署侧")]


def test_documents_hold_messages_and_those_of_before_open_with_their_english() -> None:
    picture = natural(np.random.default_rng(3), 24, 24)
    found = check_io({"preprocessed": StageValues(("a",), (fed(picture),), (fed(picture[..., ::-1]),))})
    codec = TypeAdapter(IoCheck)
    content = codec.dump_python(found, mode="json")
    assert codec.validate_python(content) == found
    change = content["stages"][0]["explanation"]["changes"][0]
    assert change["text"]["key"] == "check_io.rgb_bgr"
    change["text"] = change["text"]["text"]
    content["notes"] = ["inputs agree; so said an old document"]
    old = codec.validate_python(content)
    assert old.notes[0].within("zh") == "inputs agree; so said an old document"
    assert old.stages[0].explanation is not None
    assert str(old.stages[0].explanation.changes[0].text) == "channels are in the opposite order (RGB against BGR)"
