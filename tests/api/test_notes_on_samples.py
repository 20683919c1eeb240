"""Every command that calibrates or judges says first that samples are not what the network was trained on."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import roundoff
from roundoff import demo
from roundoff.core.quantizers import Quantizer, QuantSpec, parameters_from_range
from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import RoundoffError
from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from roundoff.preprocessing.conventions import preparations
from roundoff.samples.sample_set import ArraySamples
from roundoff.studies.check_calibration.preparation import mismatch_with_calibration
from roundoff.studies.check_calibration.study import input_notes
from tests.studies.check_calibration.sets import normalized_net, photographs

IMAGENET = next(each for each in preparations(3) if each.name == "ImageNet" and each.form == "right")


def prepared(pixels: Array) -> Array:
    return IMAGENET.made(pixels, 1).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(normalized_net(prepared).proto, path)
    return path


def said(notes: object) -> str:
    assert isinstance(notes, tuple)
    return str(notes[0]) if notes else ""


def test_raw_pixels_are_said_first(model: Path) -> None:
    raw, right = photographs(12, seed=5).astype(np.float32), prepared(photographs(12, seed=6))
    for data, wrong in ((raw, True), (right, False)):
        made = roundoff.quantize(model, data=data, target="generic-int8")
        layers = roundoff.layers(model, data=data, target="generic-int8").result
        texts = [
            said(made.result.notes),
            said(made.result.on_samples) if wrong else "",
            *(str(note) for note in layers.preparation if "not prepared as in training" in str(note)),
        ]
        assert ("not prepared as in training" in texts[0]) == wrong
        assert sum("not prepared as in training" in text for text in texts) == (3 if wrong else 0)
    found = roundoff.diagnose(model, data=raw, target="generic-int8").result
    assert any("not prepared as in training" in str(note) for note in found.notes)


@pytest.fixture(scope="module")
def folder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Quantized for the right inputs; its batch normalizations are folded and say nothing more of them."""
    place = tmp_path_factory.mktemp("quantized") / "q"
    roundoff.quantize(model, data=prepared(photographs(16, seed=8)), target="generic-int8").save(place)
    return place


def test_samples_that_a_file_was_not_calibrated_for_are_said_first(folder: Path) -> None:
    raw = photographs(12, seed=5).astype(np.float32)
    found = roundoff.layers(quantized=folder, data=raw).result
    text = said(found.preparation)
    assert text.startswith(
        "samples and file do not belong together: the input 'image' reaches 0 .. 255, its range is"
    )
    assert "the samples look like plain pixels x" in text
    assert "(x / 255 - mean) / std of ImageNet" in text
    assert "不匹配" in found.preparation[0].within("zh")


@pytest.mark.parametrize("seed", range(6))
def test_samples_that_a_file_was_calibrated_for_are_not_spoken_of(folder: Path, seed: int) -> None:
    quantized = read_quantized(load_model(next(folder.glob("*fake_quant*.onnx"))))
    feeds = ArraySamples({"image": prepared(photographs(10, seed=200 + seed) * (0.4 + 0.1 * seed))})
    assert input_notes(quantized.float_model, feeds, quantizers=quantized.quantizers) == ()


@pytest.mark.parametrize("shade", [0.38, 0.6])
def test_dark_pictures_on_a_grid_of_both_signs_are_not_spoken_of(shade: float) -> None:
    spec = QuantSpec(8, signed=True, symmetric=True, power_of_two=True)
    grid = Quantizer("q", "image", "activation", spec, parameters_from_range(0.0, 1.0, spec), ())
    pixels, specs = photographs(8, seed=9) / 255, (InputSpec("image", "float32", (1, 3, 32, 32)),)
    for gain, said_so in ((shade, False), (255.0, True)):
        feeds = [{"image": each[None].astype(np.float32) * np.float32(gain)} for each in pixels]
        found = mismatch_with_calibration([grid], specs, feeds)
        assert (found is not None and found.spoils) == said_so


def test_right_answers_tell_a_search_what_samples_are() -> None:
    values, labels = demo.load_split("calibration")
    for samples, wrong in ((values, False), ((values + 1) * 127.5, True)):
        found = roundoff.tune(
            demo.model_path(), data=samples, labels=labels, target="generic-int8", max_drop="90%", max_trials=1
        ).result
        assert any("the float model is right on" in str(note) for note in found.notes) == wrong


def test_a_search_that_cannot_begin_says_first_what_samples_are(model: Path) -> None:
    raw, told = photographs(12, seed=5).astype(np.float32), list[str]()
    with pytest.raises(RoundoffError):
        roundoff.tune(
            model, data=raw, target="generic-int8", evaluator=lambda _: 0.0, max_drop="1%", tell=told.append
        )
    assert "not prepared as in training" in told[0]


@pytest.mark.parametrize("seed", range(8))
def test_a_clean_set_is_not_spoken_of(seed: int) -> None:
    feeds = prepared(photographs(10, seed=100 + seed))
    assert input_notes(normalized_net(prepared), ArraySamples({"image": feeds})) == ()


def test_samples_that_are_no_numbers_are_left_to_others() -> None:
    feeds = np.full((3, 3, 32, 32), np.nan, np.float32)
    assert input_notes(normalized_net(prepared), ArraySamples({"image": feeds})) == ()


def test_fewer_samples_than_asked_for(model: Path) -> None:
    data = prepared(photographs(10, seed=7))
    made = roundoff.quantize(model, data=data, target="generic-int8", samples=50)
    assert said(made.result.notes) == "--samples 50 was asked for, and there are only 10"
    assert not roundoff.quantize(model, data=data, target="generic-int8", samples=10).result.on_samples
