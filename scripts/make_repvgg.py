"""Make the network and the data of the tutorial ``docs/tutorials/repvgg.md``; nothing but roundoff is needed.

    python scripts/make_repvgg.py tutorial

writes ``repvgg.onnx``, ``calibration.npy``, ``test.npy`` and ``labels.npy`` to the folder ``tutorial``.

The network has the shape of RepVGG in its deploy form: 3x3 convolutions and ReLUs, each convolution the sum of a
3x3 branch, a 1x1 branch and, where shapes allow, an identity. The branches are drawn at random and normalized;
only the classifier behind them is fitted, to the digits that ship with roundoff. It reads about 98 % of the test
digits right.

One fault is planted: the output channels of one convolution are scaled by powers of two, and the next one undoes
it. In float it is the same function to the last bit. Re-parametrized networks have such channels by themselves.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.demo import load_split
from roundoff.graph.nodes import make_model

__all__ = ["PLANTED", "build", "main", "write"]

SEED = 0
# Name, channels and stride of each block.
BLOCKS = (
    ("stage1.0", 24, 1),
    ("stage1.1", 24, 1),
    ("stage1.2", 24, 1),
    ("stage2.0", 48, 2),
    ("stage2.1", 48, 1),
    ("stage2.2", 48, 1),
    ("stage2.3", 48, 1),
)
PLANTED = ("stage2.1", "stage2.2")
"""Channels between these two are scaled."""
LARGEST_POWER = 5
# Share of the random branches against the identity: less keeps more of the image, more mixes it better.
BRANCH_GAIN = 0.25
BIAS_SPREAD = 0.3
# Of the ridge regression that fits the classifier.
RIDGE = 30.0
CLASSES = 10
OPSET = 17


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One re-parametrized convolution; a ReLU follows it."""

    name: str
    weight: Array
    bias: Array
    stride: int

    def __call__(self, images: Array) -> Array:
        """Activations (n, channels, h, w) to those behind the ReLU."""
        padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        windows = windows[:, :, :: self.stride, :: self.stride]
        sums = np.einsum("nchwij,ocij->nohw", windows, self.weight, optimize=True)
        found: Array = np.maximum(sums + self.bias[:, None, None], 0.0)
        return found

    def scaled(self, *, outputs: Array | float = 1.0, inputs: Array | float = 1.0) -> "Block":
        """The same with output and input channels multiplied."""
        rows, columns = (np.reshape(each, (-1, 1, 1, 1)) for each in (outputs, inputs))
        weight = self.weight * rows * columns.swapaxes(0, 1)
        return Block(self.name, weight, self.bias * outputs, self.stride)


def merged(rng: np.random.Generator, channels_in: int, channels_out: int, *, identity: bool) -> Array:
    """The 3x3 kernel that does what three branches do together."""
    weight: Array = rng.normal(size=(channels_out, channels_in, 3, 3)) * BRANCH_GAIN * np.sqrt(2 / channels_in) / 3
    weight[:, :, 1, 1] += rng.normal(size=(channels_out, channels_in)) * BRANCH_GAIN * np.sqrt(2 / channels_in)
    if identity:
        weight[:, :, 1, 1] += np.eye(channels_in)
    return weight


def blocks_for(images: Array) -> list[Block]:
    """Draw all blocks; each is normalized to what it sees of these images."""
    rng = np.random.default_rng(SEED)
    found = []
    for name, channels, stride in BLOCKS:
        channels_in = images.shape[1]
        weight = merged(rng, channels_in, channels, identity=channels == channels_in)
        # Far above zero the ReLU does nothing, which leaves the sums to be normalized.
        high = np.full(channels, 1e3)
        sums = Block(name, weight, high, stride)(images) - high[:, None, None]
        mean, std = sums.mean(axis=(0, 2, 3)), sums.std(axis=(0, 2, 3))
        bias = rng.normal(size=channels) * BIAS_SPREAD - mean / std
        found.append(Block(name, weight / std[:, None, None, None], bias, stride))
        images = found[-1](images)
    return found


def fitted(features: Array, labels: Array) -> tuple[Array, Array]:
    """Weight and bias of the classifier, by ridge regression."""
    rows = np.column_stack([features.reshape(len(features), -1), np.ones(len(features))])
    wanted = np.eye(CLASSES)[labels]
    solution = np.linalg.solve(rows.T @ rows + RIDGE * np.eye(rows.shape[1]), rows.T @ wanted)
    return solution[:-1].T, solution[-1]


def planted(blocks: list[Block]) -> list[Block]:
    """The same function in float, with channels of very different sizes between two of its blocks."""
    first = next(index for index, block in enumerate(blocks) if block.name == PLANTED[0])
    powers = np.random.default_rng(SEED).integers(-LARGEST_POWER, LARGEST_POWER + 1, len(blocks[first].bias))
    scale = np.exp2(powers)
    pair = [blocks[first].scaled(outputs=scale), blocks[first + 1].scaled(inputs=1 / scale)]
    return [*blocks[:first], *pair, *blocks[first + 2 :]]


def build() -> onnx.ModelProto:
    """The network with its fault."""
    images, labels = load_split("train")
    blocks = blocks_for(images.astype(np.float64))
    features = images.astype(np.float64)
    for block in blocks:
        features = block(features)
    weight, bias = fitted(features, labels)
    return to_onnx(planted(blocks), weight, bias)


def to_onnx(blocks: list[Block], weight: Array, bias: Array) -> onnx.ModelProto:
    """The network as an exporter would write it."""
    nodes, constants, source = [], [], "image"
    for block in blocks:
        conv = f"{block.name}.rbr_reparam"
        constants += [(f"{conv}.weight", block.weight), (f"{conv}.bias", block.bias)]
        inputs = [source, f"{conv}.weight", f"{conv}.bias"]
        shape = {"kernel_shape": [3, 3], "strides": [block.stride] * 2, "pads": [1] * 4}
        nodes.append(helper.make_node("Conv", inputs, [conv], name=conv, **shape))
        source = f"{block.name}.relu"
        nodes.append(helper.make_node("Relu", [conv], [source], name=source))
    constants += [("linear.weight", weight), ("linear.bias", bias)]
    nodes.append(helper.make_node("Flatten", [source], ["flatten"], name="flatten", axis=1))
    inputs = ["flatten", "linear.weight", "linear.bias"]
    nodes.append(helper.make_node("Gemm", inputs, ["logits"], name="linear", transB=1))
    graph = helper.make_graph(
        nodes,
        "repvgg",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants],
    )
    return make_model(graph, opset=OPSET)


def write(folder: Path) -> None:
    """Write the network, images to calibrate on, images to test on, and their labels."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(build(), folder / "repvgg.onnx")
    np.save(folder / "calibration.npy", load_split("calibration")[0])
    images, labels = load_split("test")
    np.save(folder / "test.npy", images)
    np.save(folder / "labels.npy", labels)


def main() -> None:
    """Make the files."""
    parser = argparse.ArgumentParser(description="Make the network and the data of the RepVGG tutorial.")
    parser.add_argument("folder", type=Path, help="where to write them")
    folder = parser.parse_args().folder
    write(folder)
    print(f"written: {', '.join(sorted(path.name for path in folder.iterdir()))}")


if __name__ == "__main__":
    main()
