"""Caffe nets for tests: built layer by layer, written as the two files, run here and by an independent runtime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime

from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextEntry, TextMessage
from roundoff.graph.caffe.convert import Imported, import_caffe
from roundoff.graph.caffe.net import blob_message
from roundoff.graph.caffe.wire import encode
from roundoff.graph.load import Model


@dataclass
class NetText:
    """A net under construction: its text, and the numbers of its layers."""

    inputs: Mapping[str, Sequence[int]] = field(default_factory=lambda: {"data": (1, 3, 8, 8)})
    text: str = ""
    blobs: dict[str, tuple[str, Sequence[Array]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, shape in self.inputs.items():
            dims = " ".join(f"dim: {size}" for size in shape)
            self.add("Input", name, (), name, f"input_param {{ shape {{ {dims} }} }}")

    def add(
        self, kind: str, name: str, bottoms: Sequence[str] | str, tops: Sequence[str] | str = "",
        params: str = "", blobs: Sequence[Array] = (),
    ) -> "NetText":  # fmt: skip
        """Add a layer; its top has its name unless others are given."""
        bottoms = [bottoms] if isinstance(bottoms, str) else bottoms
        tops = [tops or name] if isinstance(tops, str) else tops
        lines = [f'name: "{name}"', f'type: "{kind}"', *(f'bottom: "{blob}"' for blob in bottoms)]
        lines += [*(f'top: "{blob}"' for blob in tops), params]
        self.text += "layer {\n  " + "\n  ".join(line for line in lines if line) + "\n}\n"
        if blobs:
            self.blobs[name] = kind, blobs
        return self

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write net.prototxt and net.caffemodel."""
        prototxt, caffemodel = folder / "net.prototxt", folder / "net.caffemodel"
        prototxt.write_text(self.text)
        caffemodel.write_bytes(weights_bytes(self.blobs))
        return prototxt, caffemodel

    def load(self, folder: Path) -> Imported:
        """Write and convert it."""
        return import_caffe(*self.write(folder))


def weights_bytes(blobs: Mapping[str, tuple[str, Sequence[Array]]]) -> bytes:
    """A .caffemodel with these numbers; with a layer without any when there are none."""
    layers = [
        TextEntry("layer", TextMessage((
            TextEntry("name", name), TextEntry("type", kind),
            *(TextEntry("blobs", blob_message(blob)) for blob in stored),
        )))
        for name, (kind, stored) in blobs.items()
    ]  # fmt: skip
    empty = TextEntry("layer", TextMessage((TextEntry("name", "none"), TextEntry("type", "Silence"))))
    return b"".join(encode(TextMessage((TextEntry("name", "net"), *(layers or [empty]))), "NetParameter"))


def run_all(model: Model, feed: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor that a model computes."""
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    known = {value.name for value in proto.graph.output}
    for node in proto.graph.node:
        for name in node.output:
            if name and name not in known:
                proto.graph.output.add(name=name)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feed)), strict=True))


def relative_error(found: Array, wanted: Array) -> float:
    """The largest difference, as a fraction of the largest value."""
    assert found.shape == wanted.shape
    largest = float(np.abs(wanted).max(initial=0.0))
    return float(np.abs(found.astype(np.float64) - wanted).max(initial=0.0)) / (largest or 1.0)


def values(*shape: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> Array:
    """Random float32 values."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)
