"""A real network with and without a fault that its maker planted."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from roundoff.graph.load import load_model
from roundoff.studies.layers.result import LayerVerdict
from roundoff.studies.layers.study import analyze_layers
from tests.quantized import Recipe, quantized_simply
from tests.run.samples import MemorySamples

SHARED = Path(__file__).resolve().parents[4] / "shared"
MODELS = SHARED / "models" / "repvgg_fmnist"
IMAGES = SHARED / "data" / "fashion_mnist_t10k-images-idx3-ubyte.gz"

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="no real models beside this checkout")


def verdict_on(model: str, *, per_channel: bool) -> LayerVerdict:
    pixels = np.frombuffer(gzip.decompress(IMAGES.read_bytes()), np.uint8)[16:].reshape(-1, 1, 28, 28)[:96]
    images = ((pixels / 255 - 0.286) / 0.353).astype(np.float32)
    read = load_model(MODELS / f"{model}.onnx")
    name = read.proto.graph.input[0].name
    feeds = [{name: images[at : at + 16]} for at in range(0, 96, 16)]
    quantized = quantized_simply(read, feeds[:3], Recipe(per_channel=per_channel))
    return analyze_layers(quantized, MemorySamples(feeds[3:])).verdict


@pytest.mark.parametrize("per_channel", [True, False])
def test_channels_out_of_balance_between_two_layers_are_found(per_channel: bool) -> None:
    verdict = verdict_on("repvgg_fmnist_deploy_planted_conv5", per_channel=per_channel)
    assert verdict.kind == "local"
    assert {each.weighted for each in verdict.culprits} == {"/f/f.5/dep/Conv", "/f/f.6/dep/Conv"}
    assert verdict.before is not None
    assert verdict.after is not None
    assert verdict.before.sqnr_db < 6
    assert verdict.after.sqnr_db > 20
    before = next(each for each in verdict.culprits if each.weighted == "/f/f.5/dep/Conv")
    assert before.worst_channel_sqnr_db is not None
    assert before.worst_channel_sqnr_db < 1
    assert before.lost_channels > 5
    if per_channel:
        causes = {each.weighted: (each.introduced.cause, each.remedy) for each in verdict.culprits}
        assert causes == {
            "/f/f.5/dep/Conv": ("rounding", ("tensor:/f/f.5/Relu_output_0=float",)),
            "/f/f.6/dep/Conv": ("weights", ("/f/f.6/dep/Conv=weight=float",)),
        }


def test_the_same_network_without_the_fault_is_not_accused() -> None:
    verdict = verdict_on("repvgg_fmnist_deploy", per_channel=True)
    assert (verdict.kind, verdict.culprits) == ("fine", ())
