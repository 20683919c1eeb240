"""Calibration data: the folder a conversion dumps, its flat variant, and samples that are in memory."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.files import reading
from roundoff.core.names import names_by_stem, natural_key, shown
from roundoff.core.tensors import Array, InputSpec
from roundoff.data import open_samples
from roundoff.errors import nearest
from roundoff.runtime.feeds import NO_INPUTS, Samples
from roundoff.vendors.horizon.errors import WrongType, WrongValue

__all__ = ["Dataset", "open_dataset"]

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
