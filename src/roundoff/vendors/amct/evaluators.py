"""Evaluators that others wrote in a file, and one that reads raw files of batches."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.files import reading, regular_file
from roundoff.core.tensors import Array
from roundoff.errors import nearest
from roundoff.run.evaluators import call_user_code, load_user_module, objects_with
from roundoff.vendors.amct.common.auto_calibration import AutoCalibrationEvaluatorBase
from roundoff.vendors.amct.flavour import get_flavour
from roundoff.vendors.amct.observation import calibrate_with, observer_of
from roundoff.vendors.errors import CannotRun, WrongValue

__all__ = ["DATA_TYPES", "BinaryData", "load_evaluator", "parse_binary_data"]

DATA_TYPES = (
    "float64", "float32", "float16", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "bool",
)  # fmt: skip
_METHODS = ("calibration", "evaluate", "metric_eval")


@dataclass(frozen=True, slots=True)
class BinaryData:
    """Raw files with one batch each, a folder of them for every input.

    Attributes:
        inputs: Name, shape and type of every input, and the folder of its files.
        batch_num: Batches to run.
    """

    inputs: tuple[tuple[str, tuple[int, ...], str, Path], ...]
    batch_num: int

    def calibration(self, *model_files: str) -> None:
        """Run the modified model on the first batches, in ascending order of file names.

        Raises:
            BadInput: A folder holds too few files, or one of another size.
        """
        files = tuple(map(Path, model_files))
        model = get_flavour("onnx" if len(files) == 1 else "caffe").read(files)
        calibrate_with(observer_of(model), self._batches())

    def _batches(self) -> Iterator[Mapping[str, Array]]:
        files = {name: self._files(name, folder) for name, _, _, folder in self.inputs}
        for index in range(self.batch_num):
            yield {name: _read(files[name][index], shape, kind) for name, shape, kind, _ in self.inputs}

    def _files(self, name: str, folder: Path) -> list[Path]:
        with reading(folder, what="The folder of batches"):
            found = sorted(path for path in folder.iterdir() if path.suffix == ".bin")
        if len(found) < self.batch_num:
            what = f"{folder} has {len(found)} .bin files for {name!r}, and batch_num is {self.batch_num}."
            raise WrongValue(what, fix="give more files, or a smaller batch_num")
        return found


def _read(path: Path, shape: tuple[int, ...], kind: str) -> Array:
    wanted = math.prod(shape) * np.dtype(kind).itemsize
    size = regular_file(path, what="The batch")
    if size != wanted:
        what = f"{path} has {size} bytes; {kind} of the shape {list(shape)} takes {wanted}."
        raise WrongValue(what, fix="correct --input_shape or --data_types")
    with reading(path, what="The batch"):
        return np.fromfile(path, dtype=kind).reshape(shape)


def parse_binary_data(input_shape: str, data_dir: str, data_types: str, *, batch_num: int) -> BinaryData:
    """What the flags of the command line say: ``in1:n,c,h,w;in2:n,c``, ``dir1;dir2``, ``float32;int32``.

    Raises:
        WrongValue: They do not belong together, or cannot be read.
    """
    shapes = [_shape(each) for each in _split(input_shape)]
    folders, kinds = _split(data_dir), _split(data_types)
    if not len(shapes) == len(folders) == len(kinds):
        what = f"There are {len(shapes)} shapes, {len(folders)} folders and {len(kinds)} types."
        raise WrongValue(what, fix="give one of each for every input, separated by ';'")
    for kind in kinds:
        if kind not in DATA_TYPES:
            raise WrongValue(f"There is no type {kind!r}.", fix=nearest(kind, DATA_TYPES))
    return BinaryData(
        tuple(
            (name, shape, kind, Path(folder))
            for (name, shape), folder, kind in zip(shapes, folders, kinds, strict=True)
        ),
        batch_num,
    )


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(";") if each.strip()]


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, numbers = text.rpartition(":")
    try:
        shape = tuple(int(each) for each in numbers.split(","))
    except ValueError:
        shape = ()
    if not name or not shape or min(shape) < 1:
        raise WrongValue(f"{text!r} is no name and shape.", fix="write input:1,3,224,224")
    return name.strip(), shape


def load_evaluator(path: Path, *, methods: Sequence[str] = _METHODS) -> "_Guarded":
    """The evaluator in a Python file: an instance, or a class that can be made without arguments.

    Args:
        path: The file.
        methods: What it must have.

    Raises:
        CannotRun: The file holds no evaluator, or several.
        BadInput: The file cannot be read or run.
    """
    module = load_user_module(path, what="The evaluator")
    able = objects_with(methods, module, path, what="The evaluator")
    found = [each for each in able if _fits(type(each), methods)]
    if len(found) != 1:
        what = f"{path} holds {len(found)} evaluators with {', '.join(f'{name}()' for name in methods)}."
        fix = "define one class derived from AutoCalibrationEvaluatorBase"
        raise CannotRun(what, fix=f"{fix} with these methods")
    return _Guarded(found[0], path)


def _fits(kind: type, methods: Sequence[str]) -> bool:
    base = AutoCalibrationEvaluatorBase
    return all(getattr(kind, name) is not getattr(base, name) for name in methods)


class _Guarded:
    """An evaluator whose failures say where they happened."""

    def __init__(self, evaluator: Any, path: Path) -> None:
        self._evaluator, self._path = evaluator, path

    def calibration(self, *model_files: str) -> None:
        """See `AutoCalibrationEvaluatorBase`."""
        self._call("calibration", *model_files)

    def evaluate(self, *model_files: str) -> Any:
        """See `AutoCalibrationEvaluatorBase`."""
        return self._call("evaluate", *model_files)

    def metric_eval(self, original_metric: Any, new_metric: Any) -> Any:
        """See `AutoCalibrationEvaluatorBase`."""
        return self._call("metric_eval", original_metric, new_metric)

    def _call(self, method: str, *args: Any) -> Any:
        what = f"{method}() in the evaluator"
        return call_user_code(getattr(self._evaluator, method), *args, path=self._path, what=what)
