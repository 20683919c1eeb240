"""Models calibrated on inputs made in one way and fed with another: what is said of it holds."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.cli import main
from roundoff.core.tensors import Array
from roundoff.diagnosis.result import Diagnosis, Finding
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.graph.load import Model, model_from_proto
from roundoff.preprocessing.conventions import Convention, preparations
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.planting import changed, for_target, narrower, scaled
from tests.models import value, wrapped

COUNT = 16
RAW = "plain pixels x"
WAYS = {
    3: (
        "(x / 255 - mean) / std of ImageNet",
        "(x / 255 - mean) / std of CIFAR-10",
        "(x / 255 - mean) / std of CLIP",
        "x - mean of Caffe (104, 117, 123)",
        "x / 255",
        "x / 127.5 - 1",
        RAW,
    ),
    1: ("(x / 255 - mean) / std of MNIST",),
}
CASES = [(channels, formula) for channels, formulas in WAYS.items() for formula in formulas]


def way_of(formula: str, channels: int) -> Convention:
    return next(each for each in preparations(channels) if str(each.formula) == formula)


def pictures(channels: int, seed: int) -> Array:
    """Smooth pictures from black to white, pixels of 0 .. 255, float64 [16, channels, 16, 16]."""
    random = np.random.default_rng(seed)
    coarse = random.normal(0, 55, (COUNT, channels, 4, 4)).repeat(4, axis=2).repeat(4, axis=3)
    light = random.normal(0, 30, (COUNT, 1, 1, 1))
    fine = random.normal(0, 12, (COUNT, channels, 16, 16))
    return np.asarray(np.clip(np.rint(118 + coarse + light + fine), 0, 255))


def network(channels: int) -> Model:
    random = np.random.default_rng(0)

    def kernel(name: str, out: int, read: int) -> object:
        values = random.standard_normal((out, read, 3, 3)) * np.sqrt(2 / (9 * read))
        return numpy_helper.from_array(values.astype(np.float32), name)

    dense = numpy_helper.from_array(random.standard_normal((16, 10)).astype(np.float32), "w4")
    weights = [kernel("w1", 12, channels), kernel("w2", 12, 12), kernel("w3", 16, 12), dense]
    nodes = []
    for at, (read, written) in enumerate((("x", "r1"), ("r1", "r2"), ("r2", "r3")), 1):
        nodes += [
            helper.make_node("Conv", [read, f"w{at}"], [f"y{at}"], name=f"conv{at}", pads=[1] * 4),
            helper.make_node("Relu", [f"y{at}"], [written], name=f"relu{at}"),
        ]
    nodes += [
        helper.make_node("GlobalAveragePool", ["r3"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "w4"], ["y"], name="dense"),
    ]
    proto = wrapped(nodes, [value("x", (1, channels, 16, 16))], [value("y", (1, 10))], weights)
    return model_from_proto(proto, path=Path("pictures.onnx"))


def fed_with(calibrated: Convention, fed: Convention, *, target: str = "generic-int8", seed: int = 1) -> Diagnosis:
    """A model calibrated on some pictures made in one way, and fed with others made in another."""
    channels = calibrated.gain.size
    quantized, _ = for_target(
        network(channels), {"x": calibrated.made(pictures(channels, 0), 1).astype(np.float32)}, target
    )
    samples = ArraySamples({"x": fed.made(pictures(channels, seed), 1).astype(np.float32)})
    return diagnose_quantization(quantized, samples)


def told(finding: Finding) -> list[str]:
    """The ways that a finding names for what the model was calibrated on."""
    assert finding.remedy is not None
    return str(finding.remedy.changes[0].value).removeprefix("one of: ").split(" | ")


@pytest.mark.parametrize(("channels", "formula"), [each for each in CASES if each[1] != RAW])
@pytest.mark.parametrize("target", ["generic-int8", "onnxruntime"])
def test_raw_pixels_are_told_from_those_of_calibration(channels: int, formula: str, target: str) -> None:
    found = fed_with(way_of(formula, channels), way_of(RAW, channels), target=target)
    assert found.kind == "culprits", found.verdict
    finding = found.accused[0]
    assert (finding.cause, finding.tensors) == ("preprocessing", ("x",))
    assert formula in told(finding)
    assert f"the samples look like {RAW}, those of calibration like" in str(finding.summary)
    assert ("one of: " in str(finding.summary)) == (len(told(finding)) > 1)
    assert finding.measures[0].improved
    assert str(finding.intervention).startswith("ranges of ")


def test_samples_that_reach_further_than_the_others_do_not_hide_it() -> None:
    """Ranges are found again on one half of the samples: those of the other half reach a little further."""
    way, raw = way_of("x - mean of Caffe (104, 117, 123)", 3), way_of(RAW, 3)
    quantized, _ = for_target(network(3), {"x": way.made(pictures(3, 0), 1).astype(np.float32)}, "generic-int8")
    pixels = pictures(3, 1)
    pixels[1::4] = np.clip(pixels[1::4] + 40, 0, 255)
    found = diagnose_quantization(quantized, ArraySamples({"x": raw.made(pixels, 1).astype(np.float32)}))
    assert found.accused[0].cause == "preprocessing"


@pytest.mark.parametrize(("channels", "formula"), CASES)
@pytest.mark.parametrize("other", ["x / 255", "x / 127.5 - 1"])
def test_nothing_false_is_said_of_inputs_made_otherwise(channels: int, formula: str, other: str) -> None:
    found = fed_with(way_of(formula, channels), way_of(other, channels))
    named = [each for each in found.findings if each.cause == "preprocessing"]
    if formula == other:
        assert not named, "calibrated and fed alike"
    for finding in named:
        assert formula in told(finding)
        assert other in str(finding.summary)


@pytest.mark.parametrize(("channels", "formula"), CASES)
def test_other_pictures_made_alike_accuse_no_preprocessing(channels: int, formula: str) -> None:
    way = way_of(formula, channels)
    quantized, _ = for_target(network(channels), {"x": way.made(pictures(channels, 0), 1).astype(np.float32)})
    for darker, lighter in ((0.5, 0.0), (0.5, 127.0), (1.0, 0.0)):
        pixels = np.rint(pictures(channels, 3) * darker + lighter)
        found = diagnose_quantization(quantized, ArraySamples({"x": way.made(pixels, 1).astype(np.float32)}))
        assert "preprocessing" not in {each.cause for each in found.findings}


def test_the_samples_are_what_the_user_vouches_for() -> None:
    finding = fed_with(way_of(RAW, 3), way_of("x / 127.5 - 1", 3)).accused[0]
    assert finding.cause == "preprocessing"
    assert finding.remedy is not None
    assert str(finding.remedy.title) == (
        "calibrate again on samples like these (--data); only if the network was trained on plain pixels x, feed "
        "that instead, here and on the chip: ranges do not tell which"
    )
    assert finding.remedy.cost == "free"
    assert finding.remedy.changes[0].kind == "recalibrate"


CALIBRATED_ON_PIXELS = (
    Path(__file__).resolve().parents[3] / "shared" / "vectors" / "verdicts" / "remedy_feed_0_255"
)


@pytest.mark.skipif(not CALIBRATED_ON_PIXELS.is_dir(), reason="the shared vectors are not here")
def test_right_samples_of_a_real_network_are_not_said_to_be_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    files = {name: str(CALIBRATED_ON_PIXELS / name) for name in ("ocrcls.onnx", "q.onnx", "x_x.npy")}
    main(["diagnose", files["ocrcls.onnx"], "--quantized", files["q.onnx"], "--data", files["x_x.npy"], "--json"])
    found = json.loads(capsys.readouterr().out)["diagnosis"]["findings"]
    (told,) = (each for each in found if each["cause"] == "preprocessing")
    alike = "the samples look like x / 127.5 - 1, those of calibration like plain pixels x"
    assert told["proven"]
    assert alike in told["summary"]["text"]
    again = "calibrate again on samples like these (--data); only if the network was trained on"
    assert again in told["remedy"]["title"]["text"]
    assert not any("fed with" in each["remedy"]["title"]["text"] for each in found if each["remedy"])


@pytest.mark.parametrize(
    "formula", ["(x / 255 - mean) / std of ImageNet", "(x / 255 - mean) / std of CLIP", "x / 127.5 - 1", RAW]
)
def test_dark_pictures_made_in_the_same_way_are_a_narrow_calibration(formula: str) -> None:
    way = way_of(formula, 3)
    dark = np.clip(pictures(3, 0) * 0.35, 0, 255)
    quantized, _ = for_target(network(3), {"x": way.made(dark, 1).astype(np.float32)})
    found = diagnose_quantization(quantized, ArraySamples({"x": way.made(pictures(3, 1), 1).astype(np.float32)}))
    assert found.kind == "culprits", found.verdict
    assert found.accused[0].cause == "calibration-coverage"


def test_one_range_of_an_input_that_is_too_small_is_clipping() -> None:
    way = way_of("(x / 255 - mean) / std of ImageNet", 3)
    samples = {"x": way.made(pictures(3, 1), 1).astype(np.float32)}
    quantized, feeds = for_target(network(3), samples)
    found = diagnose_quantization(changed(quantized, "x", scaled(0.25)), feeds)
    assert [each.cause for each in found.accused] == ["clipping"]


def test_ranges_of_other_inputs_are_found_behind_biases_that_hide_them() -> None:
    """Two faults, either of which alone ruins the outputs: each is proven with the other put right."""
    way = way_of(RAW, 3)
    samples = {"x": way_of("x / 127.5 - 1", 3).made(pictures(3, 1), 1).astype(np.float32)}
    quantized, _ = for_target(network(3), {"x": way.made(pictures(3, 0), 1).astype(np.float32)})
    hidden = changed(quantized, "w4", narrower(2))
    found = diagnose_quantization(hidden, ArraySamples(samples))
    first, second = found.accused[:2]
    assert first.cause == "preprocessing"
    assert (second.cause, second.tensors[:1]) == ("resolution", ("w4",))
    assert first.share + second.share == pytest.approx(1.0)
