"""What the functions work on: a calibrated model and calibration data."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roundoff.graph.fake_constants import has_exact_weights
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model, load_model, model_from_proto
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.reading import read_quantized
from roundoff.vendors.horizon.arguments import sample_count
from roundoff.vendors.horizon.calibration_nodes import CalibrationNodes
from roundoff.vendors.horizon.datasets import Dataset, open_dataset
from roundoff.vendors.horizon.errors import WrongType, WrongValue
from roundoff.vendors.horizon.listening import LOGGER

__all__ = ["Opened", "is_model", "open_calibrated"]

_IN_MEMORY = Path("model_in_memory.onnx")


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A calibrated model and its data.

    Attributes:
        quantized: The float model and its quantizers.
        nodes: The quantizers by Horizon's names.
        data: What it is fed.
    """

    quantized: QuantizedModel
    nodes: CalibrationNodes
    data: Dataset

    def limited(self, data_num: int | None) -> "Opened":
        """The same with the first so many samples; all for None."""
        return replace(self, data=self.data.first(sample_count(data_num, len(self.data))))


def is_model(given: Any) -> bool:
    """Whether an argument looks like a model rather than data or a folder."""
    if isinstance(given, str | os.PathLike):
        return Path(given).suffix.lower() == ".onnx"
    return hasattr(given, "graph") or isinstance(given, Model | QuantizedModel)


def open_calibrated(model_or_file: Any, calibrated_data: Any) -> Opened:
    """Open a calibrated model and its data.

    Args:
        model_or_file: A path, a ModelProto, or a model of ours; with QuantizeLinear and DequantizeLinear or with
            HzCalibration nodes.
        calibrated_data: See `roundoff.vendors.horizon.datasets.open_dataset`.

    Raises:
        WrongType: An argument is of another kind.
        WrongValue: Nothing in the model is quantized.
        BadInput: The model or the data cannot be read.
    """
    quantized = _quantized(model_or_file)
    if not quantized.quantizers:
        raise WrongValue(
            f"{quantized.float_model.path} has no calibration nodes: nothing in it is quantized.",
            fix="give the *_calibrated_model.onnx of the conversion, or a model with QuantizeLinear nodes",
        )
    if calibrated_data is None:
        raise WrongType("calibrated_data is missing.", fix="give the folder of calibration data")
    if has_exact_weights(quantized):
        LOGGER.warning(
            "%s stores its weights as codes: what quantizing them costs cannot be seen", quantized.float_model.path
        )
    return Opened(
        quantized, CalibrationNodes(quantized), open_dataset(calibrated_data, inputs(quantized.float_model))
    )


def _quantized(given: Any) -> QuantizedModel:
    if isinstance(given, QuantizedModel):
        return given
    if isinstance(given, Model):
        return read_quantized(given)
    if isinstance(given, str | os.PathLike):
        return read_quantized(load_model(Path(given)))
    if hasattr(given, "graph") and hasattr(given, "CopyFrom"):
        return read_quantized(model_from_proto(given, path=_IN_MEMORY))
    what = f"model_or_file is {type(given).__name__}, neither a path nor a ModelProto."
    raise WrongType(what, fix="give the path of the calibrated model, or onnx.load(path)")
