"""Train the demo's network on scikit-learn's handwritten digits and write the files that ship with roundoff.

    pip install -e '.[train]'
    python -m scripts.train_demo

writes ``digits.onnx`` and ``digits.npz`` to ``src/roundoff/demo``. The seed is fixed and torch is told to be
deterministic: the same versions on the same kind of processor give the same files. Run
``scripts.make_demo_dump`` afterwards, for the board dump is made from these files.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from roundoff.core.tensors import Array
from roundoff.graph.nodes import make_model

SEED = 7
TEST_SIZE = 500
CALIBRATION_SIZE = 100
EPOCHS = 120
BATCH_SIZE = 64
LEARNING_RATE = 5e-3
WEIGHT_DECAY = 5e-3
# Pixels are whole numbers from 0 to 16; the network sees 0 to 1.
BRIGHTEST = 16
CLASSES = 10
STEM_CHANNELS = 16
RELU6_MAX = 6.0
# Both are read by every onnxruntime of the last years.
OPSET = 17
IR_VERSION = 8


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """One depthwise-separable block; it is residual when its output has the shape of its input."""

    name: str
    channels_in: int
    channels_out: int
    stride: int = 1

    @property
    def residual(self) -> bool:
        """Whether the block's input is added to its output."""
        return self.stride == 1 and self.channels_in == self.channels_out


BLOCKS = (
    BlockSpec("block1", STEM_CHANNELS, 24),
    BlockSpec("block2", 24, 24),
    BlockSpec("block3", 24, 48, stride=2),
    BlockSpec("block4", 48, 48),
)


class Block(nn.Module):  # type: ignore[misc]
    """Depthwise 3x3, norm, ReLU6; pointwise 1x1, norm, (add), ReLU."""

    def __init__(self, spec: BlockSpec) -> None:
        super().__init__()
        inner = spec.channels_in
        self.residual = spec.residual
        self.depthwise = nn.Conv2d(inner, inner, 3, spec.stride, 1, groups=inner, bias=False)
        self.depthwise_norm = nn.BatchNorm2d(inner)
        self.pointwise = nn.Conv2d(inner, spec.channels_out, 1, bias=False)
        self.pointwise_norm = nn.BatchNorm2d(spec.channels_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Activations (n, channels_in, h, w) to (n, channels_out, h / stride, w / stride)."""
        hidden = self.depthwise_norm(self.depthwise(x)).clamp(0.0, RELU6_MAX)
        out = self.pointwise_norm(self.pointwise(hidden))
        return torch.relu(out + x if self.residual else out)


class Network(nn.Module):  # type: ignore[misc]
    """Stem, blocks, global average, linear classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, STEM_CHANNELS, 3, 1, 1, bias=False)
        self.stem_norm = nn.BatchNorm2d(STEM_CHANNELS)
        self.blocks = nn.ModuleDict({spec.name: Block(spec) for spec in BLOCKS})
        self.classifier = nn.Linear(BLOCKS[-1].channels_out, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (n, 1, 8, 8) in 0..1 to logits (n, 10)."""
        x = torch.relu(self.stem_norm(self.stem(x)))
        for block in self.blocks.values():
            x = block(x)
        return self.classifier(x.mean(dim=(2, 3)))


class OnnxWriter:
    """Collects nodes and weights; every node and the tensor it computes share one name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op_type: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Append a node and return its output tensor's name."""
        self.nodes.append(onnx.helper.make_node(op_type, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, name: str, value: torch.Tensor) -> str:
        """Store a weight and return its name."""
        self.weights.append(onnx.numpy_helper.from_array(value.detach().numpy().astype(np.float32), name))
        return name

    def conv(self, name: str, source: str, layer: nn.Conv2d) -> str:
        """A convolution without bias; a norm follows it."""
        attributes = {
            "kernel_shape": list(layer.kernel_size),
            "strides": list(layer.stride),
            "pads": [layer.padding[0]] * 4,
            "group": layer.groups,
        }
        return self.node("Conv", name, source, self.weight(f"{name}/weight", layer.weight), **attributes)

    def norm(self, name: str, source: str, layer: nn.BatchNorm2d) -> str:
        """A batch norm with its running statistics."""
        inputs = [
            self.weight(f"{name}/scale", layer.weight),
            self.weight(f"{name}/bias", layer.bias),
            self.weight(f"{name}/mean", layer.running_mean),
            self.weight(f"{name}/var", layer.running_var),
        ]
        return self.node("BatchNormalization", name, source, *inputs, epsilon=layer.eps)

    def block(self, name: str, source: str, block: Block) -> str:
        """One depthwise-separable block."""
        x = self.conv(f"{name}/depthwise", source, block.depthwise)
        x = self.norm(f"{name}/depthwise_norm", x, block.depthwise_norm)
        x = self.node("Clip", f"{name}/depthwise_relu6", x, "relu6/min", "relu6/max")
        x = self.conv(f"{name}/pointwise", x, block.pointwise)
        x = self.norm(f"{name}/pointwise_norm", x, block.pointwise_norm)
        if block.residual:
            x = self.node("Add", f"{name}/add", x, source)
        return self.node("Relu", f"{name}/relu", x)


def load_data() -> dict[str, Array]:
    """All digits with the stratified split into train, calibration and test, as stored in digits.npz."""
    digits = load_digits()
    labels = digits.target.astype(np.uint8)
    everything = np.arange(len(labels), dtype=np.uint16)
    rest, test = train_test_split(everything, test_size=TEST_SIZE, random_state=SEED, stratify=labels)
    train, calibration = train_test_split(
        rest, test_size=CALIBRATION_SIZE, random_state=SEED, stratify=labels[rest]
    )
    return {
        "images": digits.images.astype(np.uint8),
        "labels": labels,
        "train": np.sort(train),
        "calibration": np.sort(calibration),
        "test": np.sort(test),
    }


def as_tensors(data: dict[str, Array], split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (n, 1, 8, 8) scaled to 0..1 and labels of one split."""
    images = data["images"][data[split]][:, None].astype(np.float32) / np.float32(BRIGHTEST)
    return torch.from_numpy(images), torch.from_numpy(data["labels"][data[split]].astype(np.int64))


def shifted(images: torch.Tensor) -> torch.Tensor:
    """Move each image by up to one pixel in each direction; the only augmentation that 8x8 pixels bear."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    rows, columns = torch.randint(0, 3, (2, len(images)))
    grid = torch.arange(8)
    image = torch.arange(len(images))[:, None, None]
    row = (rows[:, None] + grid)[:, :, None]
    column = (columns[:, None] + grid)[:, None, :]
    return padded[image, 0, row, column][:, None]


def train(images: torch.Tensor, labels: torch.Tensor) -> Network:
    """Train from scratch with a fixed seed; half of the images of each batch are shifted."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    network = Network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    steps = EPOCHS * (len(images) // BATCH_SIZE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.05)
    for _ in range(EPOCHS):
        # The last, incomplete batch is left out: its batch-norm statistics would be the noisiest.
        for picked in torch.randperm(len(images)).split(BATCH_SIZE)[: len(images) // BATCH_SIZE]:
            batch = images[picked]
            batch = torch.where(torch.rand(len(batch), 1, 1, 1) < 0.5, shifted(batch), batch)
            optimizer.zero_grad()
            loss_of(network(batch), labels[picked]).backward()
            optimizer.step()
            schedule.step()
    network.eval()
    return network


def accuracy(network: Network, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of images whose largest logit is the right one."""
    with torch.no_grad():
        return float((network(images).argmax(dim=1) == labels).float().mean())


def to_onnx(network: Network) -> onnx.ModelProto:
    """The network as an exporter would write it, with batch norms as nodes of their own."""
    writer = OnnxWriter()
    writer.weight("relu6/min", torch.tensor(0.0))
    writer.weight("relu6/max", torch.tensor(RELU6_MAX))
    x = writer.conv("stem/conv", "image", network.stem)
    x = writer.norm("stem/norm", x, network.stem_norm)
    x = writer.node("Relu", "stem/relu", x)
    for spec in BLOCKS:
        x = writer.block(spec.name, x, network.blocks[spec.name])
    x = writer.node("GlobalAveragePool", "head/pool", x)
    x = writer.node("Flatten", "head/flatten", x, axis=1)
    weight = writer.weight("logits/weight", network.classifier.weight)
    bias = writer.weight("logits/bias", network.classifier.bias)
    writer.node("Gemm", "logits", x, weight, bias, transB=1)
    graph = onnx.helper.make_graph(
        writer.nodes,
        "digits",
        [onnx.helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["N", 1, 8, 8])],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["N", CLASSES])],
        writer.weights,
    )
    model = make_model(graph, opset=OPSET, ir_version=IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Train, report the accuracy and write both files."""
    parser = argparse.ArgumentParser(description="Train the demo's network.")
    default = Path(__file__).resolve().parents[1] / "src" / "roundoff" / "demo"
    parser.add_argument("-o", "--output", type=Path, default=default, help="folder to write to")
    output = parser.parse_args().output
    data = load_data()
    network = train(*as_tensors(data, "train"))
    for split in ("train", "calibration", "test"):
        print(f"{split} accuracy {accuracy(network, *as_tensors(data, split)):.4f}")
    np.savez_compressed(output / "digits.npz", **data)  # type: ignore[arg-type]
    onnx.save(to_onnx(network), output / "digits.onnx")


if __name__ == "__main__":
    main()
