"""A Caffe net with every kind of layer that AMCT quantizes, and its quantization."""

from pathlib import Path
from typing import Any

import numpy as np

import roundoff.vendors.amct.caffe as amct
from roundoff.core.tensors import Array
from tests.graph.caffe.nets import NetText, values

SHAPE = (2, 4, 9, 9)
LAYERS = ["conv1", "depth", "left", "pool", "right", "score", "up"]


def branched_net() -> NetText:
    """Folded batch normalization in place, two readers of one blob, steps inside of a layer."""
    net = NetText({"data": SHAPE})
    conv = "convolution_param {{ num_output: {} kernel_size: {} pad: {} bias_term: {} }}"
    net.add("Convolution", "conv1", "data", "conv1", conv.format(6, 3, 1, "false"), [values(6, 4, 3, 3, seed=1)])
    statistics = [values(6, seed=2), values(6, seed=3, low=0.5, high=2), np.array([1.0], np.float32)]
    net.add("BatchNorm", "bn1", "conv1", "conv1", "batch_norm_param { use_global_stats: true }", statistics)
    scale = [values(6, seed=4, low=0.5, high=2), values(6, seed=5)]
    net.add("Scale", "scale1", "conv1", "conv1", "scale_param { bias_term: true }", scale)
    net.add("ReLU", "relu1", "conv1", "conv1")
    for seed, name in ((6, "left"), (8, "right")):
        blobs = [values(6, 6, 1, 1, seed=seed), values(6, seed=seed + 1)]
        net.add("Convolution", name, "conv1", "", conv.format(6, 1, 0, "true"), blobs)
    net.add("Eltwise", "sum", ["left", "right"])
    grouped = "convolution_param { num_output: 6 group: 6 kernel_size: 3 }"
    net.add("Convolution", "depth", "sum", "", grouped, [values(6, 1, 3, 3, seed=10), values(6, seed=11)])
    # Rounded up, so that windows are cut behind the padding: the mean is of what was padded before.
    net.add("Pooling", "pool", "depth", "", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }")
    net.add("LRN", "norm", "pool", "", "lrn_param { local_size: 3 alpha: 1 norm_region: WITHIN_CHANNEL }")
    twice = "convolution_param { num_output: 4 group: 2 kernel_size: 2 stride: 2 }"
    net.add("Deconvolution", "up", "norm", "", twice, [values(6, 2, 2, 2, seed=12), values(4, seed=13)])
    size = 4 * 8 * 8
    net.add(
        "InnerProduct", "score", "up", "", "inner_product_param { num_output: 5 }",
        [values(5, size, seed=14, low=-0.02, high=0.02), values(5, seed=15)],
    )  # fmt: skip
    return net.add("Softmax", "prob", "score")


def batches(count: int, *, seed: int = 0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    return [{"data": rng.normal(0.3, 1, SHAPE).astype(np.float32)} for _ in range(count)]


class CaffeWork:
    """A folder with a net and the files of its quantization."""

    def __init__(self, folder: Path, net: NetText | None = None, definition: str = "") -> None:
        self.folder = folder
        model, weights = (net or branched_net()).write(folder)
        self.files = str(model), str(weights)
        self.config, self.record = str(folder / "config.json"), str(folder / "record.txt")
        self.modified = str(folder / "modified.prototxt"), str(folder / "modified.caffemodel")
        defined = None
        if definition:
            defined = str(folder / "x.cfg")
            Path(defined).write_text(definition, encoding="utf-8")
        amct.create_quant_config(self.config, *self.files, batch_num=2, config_defination=defined)

    def calibrate(self) -> Any:
        graph = amct.init(self.config, *self.files, self.record)
        amct.quantize_model(graph, *self.modified)
        amct.run_model(*self.modified, batches(2))
        return graph

    def save(self, prefix: str = "out/net") -> tuple[tuple[str, str], tuple[str, str]]:
        amct.save_model(self.calibrate(), "Both", f"{self.folder}/{prefix}")
        return self.results(prefix)

    def results(self, prefix: str) -> tuple[tuple[str, str], tuple[str, str]]:
        start = f"{self.folder}/{prefix}"
        fake, deploy = (
            (f"{start}_{kind}_model.prototxt", f"{start}_{kind}_weights.caffemodel")
            for kind in ("fake_quant", "deploy")
        )
        return fake, deploy
