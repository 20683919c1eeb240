"""What the functions work on: a calibrated model and calibration data."""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from roundoff.core.files import reading
from roundoff.core.names import names_by_stem, natural_key, shown
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model, load_model, model_from_proto
from roundoff.graph.quantized_model import QuantizedModel, has_exact_weights
from roundoff.graph.readers.reader import read_quantized
from roundoff.graph.switches import Switches
from roundoff.measure.metrics import MEAN
from roundoff.messages.message import english
from roundoff.run.capture import NO_INPUTS, Samples
from roundoff.samples.arrays import GivenSamples
from roundoff.samples.sample_set import open_samples
from roundoff.vendors.facade import HORIZON_LOGGER, WrongType, WrongValue

METRICS = {
    "cosine-similarity": "mean_cosine",
    "mse": "mean_mse",
    "mre": "mean_mean_relative_error",
    "sqnr": "mean_sqnr_db",
    "chebyshev": "mean_chebyshev",
}
"""Horizon's name of each metric, and ours: its tools score each sample alone and give the mean."""

NODE_TYPES = ("node", "weight", "activation")

NodeLists: TypeAlias = "list[str | list[str]]"


def check_threshold(pick_threshold: Any) -> None:
    """Refuse what scores cannot be compared with.

    Raises:
        WrongType: It is not a number.
        WrongValue: It is NaN, which nothing reaches.
    """
    if isinstance(pick_threshold, bool) or not isinstance(pick_threshold, int | float):
        raise WrongType(
            english("pick_threshold is {pick_threshold!r}, not a number.", pick_threshold=pick_threshold),
            fix=english("give a number, as 0.999"),
        )
    if math.isnan(pick_threshold):
        raise WrongValue(
            english("pick_threshold is NaN, which no score reaches."), fix=english("give a number, as 0.999")
        )


def our_metric(name: str) -> str:
    """Our name of a metric.

    Raises:
        WrongValue: There is no such metric.
        WrongType: It is no name at all.
    """
    if not isinstance(name, str):
        raise WrongType(
            english("{name!r} is not the name of a metric.", name=name),
            fix=english("choose one of: {metrics}", metrics=", ".join(METRICS)),
        )
    if name not in METRICS:
        # Ours are understood everywhere else.
        meant = next((theirs for theirs, ours in METRICS.items() if name in (ours, ours.removeprefix(MEAN))), None)
        fix = nearest(name, METRICS) if meant is None else english("did you mean {meant!r}?", meant=meant)
        raise WrongValue(english("There is no metric {name!r}.", name=name), fix=fix)
    return METRICS[name]


def metric_names(metrics: Any) -> tuple[str, ...]:
    """One metric or a list of them, in Horizon's names, each once.

    Raises:
        WrongValue: One does not exist, or there is none.
        WrongType: It is neither a name nor a list of names.
    """
    if not isinstance(metrics, str | Sequence):
        what = english("metrics is {name}, neither a name nor a list of names.", name=type(metrics).__name__)
        raise WrongType(what, fix=english("choose from: {metrics}", metrics=", ".join(METRICS)))
    names = (metrics,) if isinstance(metrics, str) else tuple(dict.fromkeys(metrics))
    for name in names:
        our_metric(name)
    if not names:
        raise WrongValue(
            english("metrics is an empty list."), fix=english("choose from: {metrics}", metrics=", ".join(METRICS))
        )
    return names


def one_metric(metric: Any) -> str:
    """A single metric, by itself or in a list.

    Raises:
        WrongValue: There is no such metric, or there are several.
        WrongType: It is no name.
    """
    names = metric_names(metric)
    if len(names) > 1:
        raise WrongValue(
            "Several metrics were given: {names}.", fix=english("give one of them"), names=", ".join(names)
        )
    return names[0]


def sample_count(data_num: Any, available: int) -> int:
    """How many samples are used; all for None.

    Raises:
        WrongType: It is not a whole number.
        WrongValue: It is more than there are, or fewer than one.
    """
    if data_num is None:
        return available
    if isinstance(data_num, bool) or not isinstance(data_num, int):
        raise WrongType(
            english("data_num is {data_num!r}, not a whole number.", data_num=data_num),
            fix=english("give a number, or None for all"),
        )
    if not 1 <= data_num <= available:
        what = english(
            "data_num is {data_num}, but there are {available} samples.", data_num=data_num, available=available
        )
        raise WrongValue(what, fix=english("give 1 to {available}, or None for all of them", available=available))
    return data_num


def node_lists(argument: str, given: Any) -> NodeLists:
    """Names, or lists of names, as a list; nothing for None.

    Args:
        argument: What it is called, for messages.
        given: A name, a list of names, or a list of lists of names.

    Raises:
        WrongType: It is something else.
    """
    if given is None:
        return []
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable):
        raise _not_names(argument, given)
    found: NodeLists = []
    for entry in given:
        if isinstance(entry, str):
            found.append(entry)
        elif isinstance(entry, Iterable) and not isinstance(entry, bytes):
            members = list(entry)
            if not all(isinstance(name, str) for name in members):
                raise _not_names(argument, entry)
            found.append(members)
        else:
            raise _not_names(argument, entry)
    return found


def _not_names(argument: str, given: Any) -> WrongType:
    what = english(
        "{argument} holds {given!r}, which is neither a name nor a list of names.", argument=argument, given=given
    )
    return WrongType(
        what, fix=english("write {argument}=['Conv_0', 'Conv_1'], or lists of such lists", argument=argument)
    )


def flat_names(argument: str, given: Any, *, required: bool = True) -> list[str]:
    """A list of names, each once.

    Raises:
        WrongType: It holds something else.
        WrongValue: There are none and there must be.
    """
    found = node_lists(argument, given)
    if any(not isinstance(entry, str) for entry in found):
        what = english("{argument} holds lists of names; they have no meaning here.", argument=argument)
        raise WrongType(
            what, fix=english("write one list, as in {argument}=['Conv_0', 'Conv_1']", argument=argument)
        )
    if required and not found:
        raise WrongValue(
            english("{argument} names no node.", argument=argument),
            fix=english("write {argument}=['Conv_0', ...]", argument=argument),
        )
    return list(dict.fromkeys(entry for entry in found if isinstance(entry, str)))


# Quantizers under the names of calibration nodes: ``<tensor>_HzCalibration``.

_ENDING = "_HzCalibration"


class CalibrationNodes:
    """The quantizers of a model by the names Horizon's tools give them.

    Where a tensor has several quantizers, those after the first get a number behind their names.

    Args:
        quantized: The model.

    Attributes:
        by_name: Each quantizer by its name, in execution order.
    """

    by_name: dict[str, Quantizer]

    def __init__(self, quantized: QuantizedModel) -> None:
        self._switches = Switches(quantized)
        self._op_types: dict[str, str] = {
            node.name: node.op_type for node in quantized.float_model.proto.graph.node
        }
        self.by_name = {}
        for quantizer in quantized.quantizers:
            name, number = f"{quantizer.tensor}{_ENDING}", 0
            while name in self.by_name:
                number += 1
                name = f"{quantizer.tensor}{_ENDING}_{number}"
            self.by_name[name] = quantizer
        self._names = {quantizer.name: name for name, quantizer in self.by_name.items()}

    @property
    def ordinary(self) -> tuple[str, ...]:
        """Ordinary nodes that own calibration nodes, in execution order."""
        return self._switches.nodes

    def name_of(self, quantizer: str) -> str:
        """What the quantizer is called here."""
        return self._names[quantizer]

    def calibrating(self, tensor: str, quantizer: str) -> str:
        """What the quantizer of a tensor is called here, which is named only where the tensor has several."""
        return self._names.get(quantizer, f"{tensor}{_ENDING}")

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """All calibration nodes of weights or of activations."""
        return tuple(name for name, quantizer in self.by_name.items() if quantizer.kind == kind)

    def quantizers(self, names: Iterable[str]) -> tuple[str, ...]:
        """Our names of all quantizers that these nodes, or these words, stand for.

        Raises:
            WrongValue: A name means none.
        """
        wanted: set[str] = set()
        for name in names:
            wanted.update(self._quantizers(name))
        return tuple(each for each in self._switches.names if each in wanted)

    def _quantizers(self, name: str) -> tuple[str, ...]:
        if name in self.by_name:
            return (self.by_name[name].name,)
        try:
            return self._switches.find(name)
        except BadInput as error:
            raise WrongValue(error.what, fix=self.suggestion(name, error.fix)) from error

    def suggestion(self, name: str, otherwise: str) -> str:
        """Which name was probably meant."""
        if name in self._op_types:
            return otherwise
        return nearest(name, (*self.by_name, *self.ordinary))

    def without(self, quantizers: Iterable[str]) -> tuple[str, ...]:
        """Our names of all other quantizers."""
        return self._switches.complement(quantizers)

    def is_ordinary(self, name: str) -> bool:
        """Whether it is a node of the network, and not a calibration node."""
        return name in self._op_types

    def op_type(self, name: str) -> str:
        """The operation of an ordinary node, or of the first that reads what a calibration node quantizes."""
        if name in self.by_name:
            consumers = self.by_name[name].consumers
            name = consumers[0].node if consumers else ""
        return self._op_types.get(name, "")

    def feeding(self, nodes: Sequence[str]) -> list[str]:
        """The calibration nodes of weights and activations that belong to these nodes, each once."""
        found: dict[str, None] = {}
        for node in nodes:
            if node in self.by_name:
                found[node] = None
            else:
                names = (self.name_of(each) for each in self.quantizers([node]))
                found |= dict.fromkeys(name for name in names if self.by_name[name].kind != "bias")
        return list(found)


def threshold_of(quantizer: Quantizer) -> float:
    """The largest magnitude it represents; of several channels the smallest."""
    spec, params = quantizer.spec, quantizer.params
    # The lowest code of symmetric ones has no counterpart, and is not what the scale was made from.
    lowest = -spec.code_max if spec.signed and spec.symmetric else spec.code_min
    limits = [
        np.abs((code - params.zero_point) * params.scale.astype(np.float64)) for code in (lowest, spec.code_max)
    ]
    return float(np.maximum(*limits).min())


def bits_of(quantizer: Quantizer) -> int:
    """Width of its codes."""
    return quantizer.spec.bits


# Calibration data: the folder a conversion dumps, its flat variant, and samples that are in memory.

_FLAT = re.compile(r"b(?P<index>\d+)_(?P<name>.+)\.npy")
_FLAT_PREFIX = "input_data_"
_LAYOUT = english("put one folder per input there, each with 0.npy, 1.npy, ...")


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
        return Dataset(_in_memory(data, inputs))
    if not isinstance(data, str | os.PathLike):
        what = english("calibrated_data is {name}, which holds no samples.", name=type(data).__name__)
        raise WrongType(
            what, fix=english("give the folder of calibration data, or a dictionary of arrays by input")
        )
    path = Path(data)
    if not path.exists():
        raise WrongValue(
            english("The calibration data {path} do not exist.", path=shown(path)),
            fix=english("check the path; {layout}", layout=_LAYOUT),
        )
    flat = _flat_files(path, inputs)
    if not flat:
        return Dataset(open_samples(path, inputs))
    parts = [open_samples({spec.name: of[spec.name] for spec in inputs}, inputs) for of in flat.values()]
    return Dataset(GivenSamples(shown(path), tuple(map(str, flat)), lambda index: parts[index].feed(0)))


def _flat_files(path: Path, inputs: Sequence[InputSpec]) -> dict[int, dict[str, Path]]:
    """The files of each sample by input, where they lie side by side; none where they do not."""
    if not path.is_dir():
        return {}
    with reading(path, what=english("The folder")):
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
        what = english("{unknown} belongs to no input of the model.", unknown=shown(unknown[0]))
        raise WrongValue(what, fix=nearest(unknown[0].stem, owners))
    for index, files_of in found.items():
        missing = [spec.name for spec in inputs if spec.name not in files_of]
        if missing:
            what = english(
                "{path} has no file of sample {index} for the input {missing!r}.",
                path=shown(path),
                index=index,
                missing=missing[0],
            )
            raise WrongValue(what, fix=english("add b{index}_{missing}.npy", index=index, missing=missing[0]))
    return dict(sorted(found.items()))


def _in_memory(arrays: Mapping[str, Any], inputs: Sequence[InputSpec]) -> GivenSamples:
    """Samples that are in memory."""
    known = [spec.name for spec in inputs]
    for name in arrays:
        if name not in known:
            raise WrongValue(english("The model has no input {name!r}.", name=name), fix=nearest(str(name), known))
    missing = [name for name in known if name not in arrays]
    if missing:
        raise WrongValue(
            english("There are no samples for the input {missing!r}.", missing=missing[0]),
            fix=english("add a list of arrays for it"),
        )
    counts = {name: len(arrays[name]) for name in known}
    if len(set(counts.values())) > 1 or not all(counts.values()):
        listed = ", ".join(f"{count} for {name!r}" for name, count in counts.items())
        raise WrongValue(
            english("Inputs have different numbers of samples, or none: {listed}.", listed=listed),
            fix=english("give as many for each"),
        )

    def feed(index: int) -> dict[str, Array]:
        found = {}
        for spec in inputs:
            array = np.asarray(arrays[spec.name][index])
            # A row of a stacked array has lost its first axis.
            if spec.shape is not None and array.ndim == len(spec.shape) - 1:
                array = array[np.newaxis]
            found[spec.name] = array
        return found

    return GivenSamples("arrays in memory", counts[known[0]], feed)


_IN_MEMORY = Path("model_in_memory.onnx")


@dataclass(frozen=True, slots=True, eq=False)
class CalibratedModel:
    """A calibrated model and its data.

    Attributes:
        quantized: The float model and its quantizers.
        nodes: The quantizers by Horizon's names.
        data: What it is fed.
    """

    quantized: QuantizedModel
    nodes: CalibrationNodes
    data: Dataset

    def limited(self, data_num: int | None) -> "CalibratedModel":
        """The same with the first so many samples; all for None."""
        return replace(self, data=self.data.first(sample_count(data_num, len(self.data))))


def is_model(given: Any) -> bool:
    """Whether an argument looks like a model rather than data or a folder."""
    if isinstance(given, str | os.PathLike):
        return Path(given).suffix.lower() == ".onnx"
    return hasattr(given, "graph") or isinstance(given, Model | QuantizedModel)


def open_calibrated(model_or_file: Any, calibrated_data: Any) -> CalibratedModel:
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
            "{path} has no calibration nodes: nothing in it is quantized.",
            fix=english(
                "give the *_calibrated_model.onnx of the conversion, or a model with QuantizeLinear nodes"
            ),
            path=quantized.float_model.path,
        )
    if calibrated_data is None:
        raise WrongType(english("calibrated_data is missing."), fix=english("give the folder of calibration data"))
    if has_exact_weights(quantized):
        HORIZON_LOGGER.warning(
            english(
                "{path} stores its weights as codes: what quantizing them costs cannot be seen",
                path=quantized.float_model.path,
            )
        )
    return CalibratedModel(
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
    what = english("model_or_file is {name}, neither a path nor a ModelProto.", name=type(given).__name__)
    raise WrongType(what, fix=english("give the path of the calibrated model, or onnx.load(path)"))
