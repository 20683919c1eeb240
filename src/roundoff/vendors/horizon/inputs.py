"""What the functions work on: a calibrated model and calibration data."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.files import reading
from roundoff.core.names import names_by_stem, natural_key, shown
from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import nearest
from roundoff.graph.fake_constants import has_exact_weights
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model, load_model, model_from_proto
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.reading.read import read_quantized
from roundoff.run.feeds import NO_INPUTS, Samples
from roundoff.samples.sample_set import open_samples
from roundoff.vendors.errors import WrongType, WrongValue
from roundoff.vendors.horizon.arguments import sample_count
from roundoff.vendors.horizon.calibration_nodes import CalibrationNodes
from roundoff.vendors.horizon.logging import LOGGER

__all__ = [
    "Dataset",
    "Opened",
    "is_model",
    "open_calibrated",
    "open_dataset",
]


# Calibration data: the folder a conversion dumps, its flat variant, and samples that are in memory.

_FLAT = re.compile(r"b(?P<index>\d+)_(?P<name>.+)\.npy")
_FLAT_PREFIX = "input_data_"
_LAYOUT = "put one folder per input there, each with 0.npy, 1.npy, ..."


class Dataset(Sequence[Mapping[str, Array]]):
    """Samples of a model's inputs: `select_sensitive_samples` gives one, and every function takes one.

    Each sample is a dictionary of arrays by input. Nothing is read before it is asked for.

    Args:
        samples: Where they are.
        indices: Which of them; all by default.
    """

    def __init__(self, samples: Samples, indices: Sequence[int] | None = None) -> None:
        self._samples = samples
        self._indices = tuple(range(len(samples.names)) if indices is None else indices)

    @property
    def label(self) -> str:
        """Where they come from."""
        return self._samples.label

    @property
    def names(self) -> tuple[str, ...]:
        """What the samples are called."""
        return tuple(self._samples.names[index] for index in self._indices)

    def feed(self, index: int) -> Mapping[str, Array]:
        """The value of every input in one sample."""
        return self._samples.feed(self._indices[index])

    def first(self, count: int) -> "Dataset":
        """The first so many."""
        return self.chosen(range(count))

    def chosen(self, indices: Sequence[int]) -> "Dataset":
        """Some of them, in this order."""
        return Dataset(self._samples, [self._indices[index] for index in indices])

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.chosen(range(len(self))[index])
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return self.feed(index % len(self))

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        return (self.feed(index) for index in range(len(self)))


def open_dataset(data: Any, inputs: Sequence[InputSpec]) -> Dataset:
    """Open calibration data.

    Args:
        data: A folder with one folder per input (``<input>/0.npy``), one with files that are called
            ``b<index>_[input_data_]<input>.npy``, a `Dataset`, or a dictionary of lists of arrays by input.
        inputs: What the model expects.

    Raises:
        BadInput: There are no samples, or they do not fit the inputs.
        WrongType: It is something else.
    """
    if isinstance(data, Dataset):
        return data
    if not inputs:
        return Dataset(NO_INPUTS)
    if isinstance(data, Mapping):
        return Dataset(_Arrays(data, inputs))
    if not isinstance(data, str | os.PathLike):
        what = f"calibrated_data is {type(data).__name__}, which holds no samples."
        raise WrongType(what, fix="give the folder of calibration data, or a dictionary of arrays by input")
    path = Path(data)
    if not path.exists():
        raise WrongValue(f"The calibration data {shown(path)} do not exist.", fix=f"check the path; {_LAYOUT}")
    flat = _flat_files(path, inputs)
    return Dataset(_Files(path, flat, inputs) if flat else open_samples(path, inputs))


def _flat_files(path: Path, inputs: Sequence[InputSpec]) -> dict[int, dict[str, Path]]:
    """The files of each sample by input, where they lie side by side; none where they do not."""
    if not path.is_dir():
        return {}
    with reading(path, what="The folder"):
        files = sorted(
            (each for each in path.iterdir() if each.is_file()), key=lambda each: natural_key(each.name)
        )
    owners = names_by_stem([spec.name for spec in inputs])
    found: dict[int, dict[str, Path]] = {}
    unknown = []
    for file in files:
        match = _FLAT.fullmatch(file.name)
        if match is None:
            continue
        stem = match["name"]
        owner = owners.get(stem) or owners.get(stem.removeprefix(_FLAT_PREFIX))
        if owner is None:
            unknown.append(file)
        else:
            found.setdefault(int(match["index"]), {})[owner] = file
    if found and unknown:
        what = f"{shown(unknown[0])} belongs to no input of the model."
        raise WrongValue(what, fix=nearest(unknown[0].stem, owners))
    for index, files_of in found.items():
        missing = [spec.name for spec in inputs if spec.name not in files_of]
        if missing:
            what = f"{shown(path)} has no file of sample {index} for the input {missing[0]!r}."
            raise WrongValue(what, fix=f"add b{index}_{missing[0]}.npy")
    return dict(sorted(found.items()))


class _Files:
    """Samples whose files lie side by side in one folder."""

    def __init__(self, folder: Path, files: Mapping[int, Mapping[str, Path]], inputs: Sequence[InputSpec]) -> None:
        self.label = shown(folder)
        self.names = tuple(map(str, files))
        self._parts = [
            open_samples({spec.name: of[spec.name] for spec in inputs}, inputs) for of in files.values()
        ]

    def feed(self, index: int) -> Mapping[str, Array]:
        return self._parts[index].feed(0)


class _Arrays:
    """Samples that are in memory."""

    label = "arrays in memory"

    def __init__(self, arrays: Mapping[str, Any], inputs: Sequence[InputSpec]) -> None:
        known = [spec.name for spec in inputs]
        for name in arrays:
            if name not in known:
                raise WrongValue(f"The model has no input {name!r}.", fix=nearest(str(name), known))
        missing = [name for name in known if name not in arrays]
        if missing:
            raise WrongValue(
                f"There are no samples for the input {missing[0]!r}.", fix="add a list of arrays for it"
            )
        counts = {name: len(arrays[name]) for name in known}
        if len(set(counts.values())) > 1 or not all(counts.values()):
            listed = ", ".join(f"{count} for {name!r}" for name, count in counts.items())
            raise WrongValue(
                f"Inputs have different numbers of samples, or none: {listed}.", fix="give as many for each"
            )
        self.names = tuple(map(str, range(next(iter(counts.values())))))
        self._arrays, self._inputs = arrays, inputs

    def feed(self, index: int) -> Mapping[str, Array]:
        found = {}
        for spec in self._inputs:
            array = np.asarray(self._arrays[spec.name][index])
            # A row of a stacked array has lost its first axis.
            if spec.shape is not None and array.ndim == len(spec.shape) - 1:
                array = array[np.newaxis]
            found[spec.name] = array
        return found


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
        calibrated_data: See `roundoff.vendors.horizon.inputs.open_dataset`.

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
