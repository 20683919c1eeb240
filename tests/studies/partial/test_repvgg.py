"""The documented case in kind: a RepVGG that a planted imbalance between two convolutions breaks."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.quantizers import SwitchedSubject
from roundoff.core.tensors import Array
from roundoff.graph.load import load_model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.studies.accumulate.study import accumulate
from roundoff.studies.partial.result import PartialSettings, Raise
from roundoff.studies.partial.study import sweep
from roundoff.studies.sensitivity.study import ranked_subjects
from tests.run.samples import MemorySamples

SHARED = Path(__file__).resolve().parents[4] / "shared"
MODEL = SHARED / "models" / "repvgg_fmnist" / "repvgg_fmnist_deploy_planted_conv5.onnx"
CALIBRATION, TEST = slice(0, 64), slice(64, 164)

pytestmark = pytest.mark.skipif(not MODEL.exists(), reason="no real models beside this checkout")


def stored(name: str, start: int) -> Array:
    with gzip.open(SHARED / "data" / f"fashion_mnist_t10k-{name}.gz") as file:
        return np.frombuffer(file.read()[start:], np.uint8)


def samples(part: slice) -> MemorySamples:
    pixels = stored("images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)[part]
    images = ((pixels / np.float32(255) - np.float32(0.286)) / np.float32(0.353)).astype(np.float32)
    return MemorySamples([{"data": image[None]} for image in images])


@pytest.fixture(scope="module")
def quantized() -> QuantizedModel:
    settings = QuantizeSettings(load_target("generic-int8-per-tensor"))
    return quantize_model(load_model(MODEL), samples(CALIBRATION), settings).quantized


def test_the_curves_fall_where_the_fault_is(quantized: QuantizedModel) -> None:
    found = accumulate(quantized, samples(slice(0, 16)))
    verdict = found.verdict
    assert found.nodes[verdict.jumps[0].order].node == "/f/f.6/dep/Conv"
    assert verdict.falls_at == verdict.jumps[0].order
    # The imbalance spoils the weights on both sides of it and the activation between them.
    assert verdict.dominance == "both"


@pytest.fixture(scope="module")
def ranking(quantized: QuantizedModel) -> tuple[SwitchedSubject, ...]:
    return ranked_subjects(quantized, samples(CALIBRATION), "node")[0]


@pytest.mark.parametrize("to", ["float", "s16"])
def test_two_convolutions_restore_the_accuracy(
    quantized: QuantizedModel, ranking: tuple[SwitchedSubject, ...], to: Raise
) -> None:
    labels = stored("labels-idx1-ubyte", 8)[TEST].astype(np.int64)
    found = sweep(quantized, samples(TEST), ranking, PartialSettings(labels=labels, top=3, to=to))
    assert found.float_score > 0.9
    assert found.steps[0].score < 0.6
    assert found.knee == 2
    assert set(found.chosen) == {"/f/f.5/dep/Conv", "/f/f.6/dep/Conv"}
    assert found.levels_off == 2
