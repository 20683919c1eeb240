"""A calibrated model in both dialects, its data, and brute force to compare with."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.graph.insertion import insert_quantizers, switch_on
from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from roundoff.run.session import open_session
from tests.models import conv_net, loaded, random_feed, value, weight, wrapped
from tests.quantized import quantized_simply

SHAPE = {"image": (1, 3, 8, 8)}
SAMPLES = 4


def feeds() -> list[dict[str, Array]]:
    """The samples."""
    return [random_feed(SHAPE, seed) for seed in range(SAMPLES)]


def write_case(folder: Path) -> tuple[str, str]:
    """A calibrated model with QuantizeLinear nodes, and its calibration data as a conversion dumps them."""
    model = loaded(conv_net(), folder)
    quantized = quantized_simply(model, feeds())
    onnx.save(insert_quantizers(model, quantized.quantizers).proto, folder / "calibrated_model.onnx")
    (folder / "calibration_data" / "image").mkdir(parents=True)
    for index, feed in enumerate(feeds()):
        np.save(folder / "calibration_data" / "image" / f"{index}.npy", feed["image"])
    return str(folder / "calibrated_model.onnx"), str(folder / "calibration_data")


def horizon_model() -> Any:
    """x -> Conv_0 -> Relu_1 -> Conv_2 -> y with a HzCalibration node on every input of the convolutions."""

    def calibration(tensor: str, **attributes: Any) -> Any:
        return helper.make_node(
            "HzCalibration", [tensor], [f"{tensor}_calibrated"], name=f"{tensor}_HzCalibration", domain="horizon",
            **attributes,
        )  # fmt: skip

    weights = [weight("w0", 4, 3, 3, 3), weight("w2", 2, 4, 1, 1, seed=1)]
    scales = [np.abs(numpy_helper.to_array(each)).max(axis=(1, 2, 3)) / 127 for each in weights]
    nodes = [
        calibration("image", thresholds=[5.0], bits=8),
        calibration("w0", scales=scales[0].tolist(), axis=0, bits=8),
        helper.make_node("Conv", ["image_calibrated", "w0_calibrated"], ["a"], name="Conv_0"),
        helper.make_node("Relu", ["a"], ["b"], name="Relu_1"),
        calibration("b", thresholds=[20.0], qtype="int16"),
        calibration("w2", scales=scales[1].tolist(), axis=0, bits=8),
        helper.make_node("Conv", ["b_calibrated", "w2_calibrated"], ["y"], name="Conv_2"),
    ]
    return wrapped(nodes, [value("image", SHAPE["image"])], [value("y")], weights)


def cosine_with_only(path: str, *quantizers: str, count: int = SAMPLES) -> float:
    """Mean cosine of the outputs with only these quantizers on, by running the whole model."""
    quantized = read_quantized(load_model(Path(path)))
    on = [each for each in quantized.quantizers if each.name in quantizers]
    assert len(on) == len(quantizers)
    outputs = []
    for model in (quantized.float_model, switch_on(quantized.float_model, on)):
        session = open_session(model)
        outputs.append([session.run(feed, sample="")[0].astype(np.float64).ravel() for feed in feeds()[:count]])
    pairs = zip(*outputs, strict=True)
    return float(np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs]))
