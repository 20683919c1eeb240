"""A network with one range that is too small, as files."""

from pathlib import Path

import numpy as np

from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.save import save_model
from tests.diagnosis.planting import changed, demo, scaled

CLIPPED = "block2/depthwise_relu6"
"""The tensor whose range is too small."""


def write_clipped(folder: Path) -> None:
    """Write ``float.onnx``, ``bad.onnx`` and ``data.npz``."""
    quantized, samples = demo()
    model = quantized.float_model
    save_model(model, folder / "float.onnx")
    save_model(insert_quantizers(model, changed(quantized, CLIPPED, scaled(0.2)).quantizers), folder / "bad.onnx")
    feeds = [samples.feed(index) for index in range(len(samples.names))]
    arrays = {key: np.concatenate([feed[key] for feed in feeds]) for key in feeds[0]}
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
