"""A small network on every side of Ascend's guide: float, fake-quant, and offline with and without fusion."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.core.tensors import Array
from roundoff.tensors.ascend_dump.layouts import LaidOutValues, to_device
from tests.ascend_dumps import TIME, item, write_dump
from tests.vendors.ascend.models import op, output, write_model

SHAPES = {"data": (1, 3, 8, 8), "conv1": (1, 20, 8, 8), "relu1": (1, 20, 8, 8), "fc1": (1, 40)}


@dataclass(frozen=True)
class Sides:
    """Folders and rules by what they are."""

    folder: Path

    def __getattr__(self, name: str) -> str:
        path = self.folder / name
        return str(path if path.exists() else path.with_suffix(".json"))


def golden_folder(folder: Path, tensors: Mapping[str, Array]) -> Path:
    """Write golden data, one output per operator."""
    folder.mkdir(parents=True)
    for place, (name, array) in enumerate(tensors.items()):
        np.save(folder / f"{name}.0.{TIME + place}.npy", array)
    return folder


def _blocked(array: Array, *, block: int = 16) -> Array:
    stored = to_device(LaidOutValues(array, "NCHW"), "NC1HWC0", block=block)
    assert stored is not None
    return np.ascontiguousarray(stored)


def _image(array: Array, dtype: type = np.float16, *, block: int = 16, address: int = 0) -> object:
    return item(
        _blocked(array, block=block).astype(dtype), format="NC1HWC0", original=array.shape, address=address
    )


def _npu(folder: Path, ops: Mapping[str, tuple[str, list[object], list[object]]]) -> None:
    folder.mkdir(parents=True)
    for place, (name, (kind, inputs, outputs)) in enumerate(ops.items()):
        path = folder / f"{kind}.{name}.{place}.3.{TIME + place}"
        write_dump(path, outputs, inputs, op_name=name)  # type: ignore[arg-type]


def write_sides(folder: Path, *, damage: float = 0.0) -> Sides:
    """Write all sides.

    Args:
        folder: Where to.
        damage: How much of the fused convolution's output is replaced by noise on the NPU.
    """
    rng = np.random.default_rng(3)
    data, conv, fc = (rng.normal(size=SHAPES[name]).astype(np.float32) for name in ("data", "conv1", "fc1"))
    relu = np.maximum(conv, 0)
    noise = np.maximum(rng.normal(size=relu.shape), 0).astype(np.float32)
    golden_folder(folder / "float", {"data": data, "conv1": conv, "relu1": relu, "fc1": fc})
    codes = np.clip(np.round(data * 30), -128, 127)
    fake = np.round(conv * 40) / 40
    golden_folder(folder / "fake", {
        "data": data, "conv1_quant_layer": codes / 30, "conv1": fake, "conv1_dequant_layer": fake,
        "relu1": np.maximum(fake, 0), "fc1": fc,
    })  # fmt: skip
    mine = (1 - damage) * relu + damage * noise
    matrix = item(fc.astype(np.float16))
    _npu(folder / "npu", {
        "trans": ("TransData", [item(data, format="NCHW", original=data.shape)], [_image(data, address=64)]),
        "conv1relu1": ("Conv2D", [_image(data)], [_image(mine)]), "fc1": ("MatMul", [_image(mine)], [matrix]),
    })  # fmt: skip
    _npu(folder / "npu_off", {
        "conv1": ("Conv2D", [_image(data)], [_image(conv)]), "relu1": ("Relu", [_image(conv)], [_image(relu)]),
        "fc1": ("MatMul", [_image(relu)], [matrix]),
    })  # fmt: skip
    _npu(folder / "quant_off", {
        "conv1_quant_layer": ("AscendQuant", [_image(data)], [_image(codes, np.int8, block=32)]),
        "conv1": ("Conv2D", [_image(codes, np.int8, block=32)], [_image(codes[:, :1], np.int32)]),
        "conv1_dequant_layer": ("AscendDequant", [_image(codes[:, :1], np.int32)], [_image(fake)]),
        "relu1": ("Relu", [_image(fake)], [_image(np.maximum(fake, 0))]),
        "fc1": ("MatMul", [_image(np.maximum(fake, 0))], [matrix]),
    })  # fmt: skip
    _write_models(folder)
    return Sides(folder)


def _write_models(folder: Path) -> None:
    image, big = output(SHAPES["data"], layout="NCHW"), SHAPES["relu1"]
    start = op("data", "Data", outputs=[image])
    trans = op("trans", "TransData", originals=[], inputs=["data:0"], outputs=[image])
    end = op("out", "NetOutput", inputs=["fc1:0"])
    write_model(
        folder / "on.json", start, trans,
        op("conv1relu1", "Conv2D", originals=["conv1", "relu1"], inputs=["trans:0"],
           outputs=[output(big, origin="relu1", index=0, layout="NCHW")]),
        op("fc1", "MatMul", inputs=["conv1relu1:0"], outputs=[output(SHAPES["fc1"])]), end,
    )  # fmt: skip
    write_model(
        folder / "off.json", start, op("conv1", "Conv2D", inputs=["data:0"], outputs=[output(big, layout="NCHW")]),
        op("relu1", "Relu", inputs=["conv1:0"], outputs=[output(big, layout="NCHW")]),
        op("fc1", "MatMul", inputs=["relu1:0"], outputs=[output(SHAPES["fc1"])]), end,
    )  # fmt: skip
    codes = output(SHAPES["data"], layout="NCHW", dtype="DT_INT8")
    write_model(
        folder / "quant_off_om.json", start,
        op("conv1_quant_layer", "AscendQuant", inputs=["data:0"], outputs=[codes]),
        op("conv1", "Conv2D", inputs=["conv1_quant_layer:0"],
           outputs=[output(big, layout="NCHW", dtype="DT_INT32")]),
        op("conv1_dequant_layer", "AscendDequant", inputs=["conv1:0"], outputs=[output(big, layout="NCHW")]),
        op("relu1", "Relu", inputs=["conv1_dequant_layer:0"], outputs=[output(big, layout="NCHW")]),
        op("fc1", "MatMul", inputs=["relu1:0"], outputs=[output(SHAPES["fc1"])]), end,
    )  # fmt: skip
    write_model(
        folder / "amct.json", op("data", "Input"), op("conv1_quant_layer", "Quant", originals=["conv1"]),
        op("conv1", "Convolution", originals=["conv1"]),
        op("conv1_dequant_layer", "DeQuant", originals=["conv1"], outputs=[output(origin="conv1", index=0)]),
        op("relu1", "ReLU"), op("fc1", "InnerProduct"),
    )  # fmt: skip
