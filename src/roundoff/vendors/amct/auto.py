"""Accuracy-based auto-calibration of a model of any framework, and the evaluators it is given."""

import contextlib
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from roundoff.core.claims import ScratchFolder, alone_in
from roundoff.core.files import clear_up, reading, regular_file, writing
from roundoff.core.quantizers import Consumer
from roundoff.core.tensors import Array
from roundoff.errors import nearest
from roundoff.graph.blocks import BlockModels, ModelBlock
from roundoff.graph.shapes import values
from roundoff.messages.message import english
from roundoff.run.evaluators import call_user_code, finite_number, load_user_module, objects_with
from roundoff.run.session import Session, open_session
from roundoff.search.strategies.roll_back import RollBackTrial
from roundoff.studies.sensitivity.ranking import mean_scores
from roundoff.vendors.amct.common.auto_calibration import (
    BEST_EFFORT_CONFIG,
    FINAL_CONFIG,
    RANKING,
    AccuracyBasedAutoCalibrationBase,
    AutoCalibrationEvaluatorBase,
    AutoCalibrationResult,
    SearchOptions,
    SensitivityBase,
)
from roundoff.vendors.amct.config import with_algorithm_keys, with_enabled
from roundoff.vendors.amct.deploy import make_folder, results_of
from roundoff.vendors.amct.layers import AmctLayer
from roundoff.vendors.amct.observation import CalibrationObserver, calibrate_with, observer_of
from roundoff.vendors.amct.quantizers import quantizers_of
from roundoff.vendors.amct.records import LayerRecord, write_records
from roundoff.vendors.amct.workflow import AmctModel, Files, Flavour, calibrate_by, flavour_of, open_model
from roundoff.vendors.facade import CannotRun, WrongValue, a_path, keep_apart

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
        calibrate_with(observer_of(flavour_of(files).read(files)), self._batches())

    def _batches(self) -> Iterator[Mapping[str, Array]]:
        files = {name: self._files(name, folder) for name, _, _, folder in self.inputs}
        for index in range(self.batch_num):
            yield {name: _read(files[name][index], shape, kind) for name, shape, kind, _ in self.inputs}

    def _files(self, name: str, folder: Path) -> list[Path]:
        with reading(folder, what=english("The folder of batches")):
            found = sorted(path for path in folder.iterdir() if path.suffix == ".bin")
        if len(found) < self.batch_num:
            what = english(
                "{folder} has {count} .bin files for {name!r}, and batch_num is {batch_num}.",
                folder=folder,
                count=len(found),
                name=name,
                batch_num=self.batch_num,
            )
            raise WrongValue(what, fix=english("give more files, or a smaller batch_num"))
        return found


def _read(path: Path, shape: tuple[int, ...], kind: str) -> Array:
    wanted = math.prod(shape) * np.dtype(kind).itemsize
    size = regular_file(path, what=english("The batch"))
    if size != wanted:
        what = english(
            "{path} has {size} bytes; {kind} of the shape {shape} takes {wanted}.",
            path=path,
            size=size,
            kind=kind,
            shape=list(shape),
            wanted=wanted,
        )
        raise WrongValue(what, fix=english("correct --input_shape or --data_types"))
    with reading(path, what=english("The batch")):
        return np.fromfile(path, dtype=kind).reshape(shape)


def parse_binary_data(input_shape: str, data_dir: str, data_types: str, *, batch_num: int) -> BinaryData:
    """What the flags of the command line say: ``in1:n,c,h,w;in2:n,c``, ``dir1;dir2``, ``float32;int32``.

    Raises:
        WrongValue: They do not belong together, or cannot be read.
    """
    shapes = [_shape(each) for each in _split(input_shape)]
    folders, kinds = _split(data_dir), _split(data_types)
    if not len(shapes) == len(folders) == len(kinds):
        what = english(
            "There are {count} shapes, {count2} folders and {count3} types.",
            count=len(shapes),
            count2=len(folders),
            count3=len(kinds),
        )
        raise WrongValue(what, fix=english("give one of each for every input, separated by ';'"))
    for kind in kinds:
        if kind not in DATA_TYPES:
            raise WrongValue(english("There is no type {kind!r}.", kind=kind), fix=nearest(kind, DATA_TYPES))
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
        raise WrongValue("{text!r} is no name and shape.", fix=english("write input:1,3,224,224"), text=text)
    return name.strip(), shape


def load_evaluator(path: Path, *, methods: Sequence[str] = _METHODS) -> Any:
    """The evaluator in a Python file: an instance, or a class that can be made without arguments.

    Its failures say where they happened.

    Args:
        path: The file.
        methods: What it must have.

    Raises:
        CannotRun: The file holds no evaluator, or several.
        BadInput: The file cannot be read or run.
    """
    module = load_user_module(path, what=english("The evaluator"))
    able = objects_with(methods, module, path, what=english("The evaluator"))
    found = [each for each in able if _fits(type(each), methods)]
    if len(found) != 1:
        what = english(
            "{path} holds {count} evaluators with {methods}.",
            path=path,
            count=len(found),
            methods=", ".join(f"{name}()" for name in methods),
        )
        fix = english("define one class derived from AutoCalibrationEvaluatorBase")
        raise CannotRun(what, fix=english("{fix} with these methods", fix=fix))

    def guarded(method: str) -> Callable[..., Any]:
        what = english("{method}() in the evaluator", method=method)
        return partial(call_user_code, getattr(found[0], method), path=path, what=what)

    return SimpleNamespace(**{method: guarded(method) for method in methods})


def _fits(kind: type, methods: Sequence[str]) -> bool:
    base = AutoCalibrationEvaluatorBase
    return all(getattr(kind, name) is not getattr(base, name) for name in methods)


# How much quantization hurts each layer alone: the same input through the layer in float, and quantized.

_AT_ONCE = 16
"""Layers whose inputs are held together."""


def rank_layers(
    observer: CalibrationObserver,
    opened: AmctModel,
    records: Mapping[str, LayerRecord],
    *,
    sensitivity: SensitivityBase,
) -> dict[str, float]:
    """The mean over batches of what a sensitivity says of each layer.

    Args:
        observer: What calibration has seen, with the batches kept; its model may name tensors in its own way,
            and its weights may be rounded.
        opened: The float model.
        records: Of the layers that are quantized.
        sensitivity: Compares both outputs.

    Raises:
        CannotRun: No batch was kept.
        ModelFailed: A layer cannot be run.
    """
    layers = [opened.layers[name] for name in records if name in opened.layers]
    found: dict[str, float] = {}
    for start in range(0, len(layers), _AT_ONCE):
        some = layers[start : start + _AT_ONCE]
        scores = mean_scores(
            dict(_pairs(opened, records, some)), _feeds(observer, some), _first_outputs(sensitivity)
        )
        if len(scores) < len(some):
            what = english(
                "calibration() ran the modified model where it cannot be seen, so that layers cannot be ranked."
            )
            raise CannotRun(what, fix=opened.flavour.how_to_run)
        found |= scores
    return found


def _first_outputs(sensitivity: SensitivityBase) -> Callable[[list[Array], list[Array]], float]:
    """What a sensitivity says of the output of a layer, flat as the vendor hands it over."""
    of = english("compare() of {kind}", kind=type(sensitivity).__name__)
    return lambda plain, quantized: finite_number(
        sensitivity.compare(plain[0].ravel(), quantized[0].ravel()), of=of, infinite=True, error=WrongValue
    )


def _feeds(observer: CalibrationObserver, layers: Sequence[AmctLayer]) -> Iterator[dict[str, dict[str, Array]]]:
    """For each batch that calibration has seen, what each layer read."""
    seen = {layer.name: [tensor for tensor, _ in observer.layers[layer.name].inputs] for layer in layers}
    tensors = list(dict.fromkeys(tensor for names in seen.values() for tensor in names))
    for batch in observer.values(tensors):
        yield {
            layer.name: {
                tensor: batch[name] for (tensor, _), name in zip(layer.inputs, seen[layer.name], strict=True)
            }
            for layer in layers
        }


def _pairs(
    opened: AmctModel, records: Mapping[str, LayerRecord], layers: Sequence[AmctLayer]
) -> Iterator[tuple[str, tuple[Session, Session]]]:
    models = BlockModels(opened.model, values(opened.model))
    for layer in layers:
        own = quantizers_of(opened.model, opened.layers, {layer.name: records[layer.name]})
        # Sums have 32 bits: what the bias loses is nothing against the rest.
        readings = {
            Consumer(layer.name, each.input): (quantizer,)
            for quantizer in own
            if quantizer.kind != "bias"
            for each in quantizer.consumers
        }
        nodes = dict.fromkeys((layer.name, *((layer.bias.node,) if layer.bias is not None else ())))
        reads = dict.fromkeys(tensor for tensor, _ in layer.inputs)
        block = ModelBlock(tuple(nodes), tuple(reads), (layer.output,), 0.0)
        yield layer.name, (open_session(models.make(block)), open_session(models.make(block, readings)))


class ModelAutoCalibration(AccuracyBasedAutoCalibrationBase):
    """Searches for a configuration of one model.

    Args:
        flavour: What the model is of.
        files: The model.
        evaluator: Measures models and judges the measure.
        config_file: The configuration; it is only read.
        record_file: Where the factors of the delivered model go.
        save_dir: Folder and prefix of the results.
        strategy: Proposes layers that go back to float.
        sensitivity: Ranks layers.
        options: What else was asked for.
    """

    def __init__(  # noqa: PLR0913 - the vendor's arguments
        self,
        flavour: Flavour,
        files: Files,
        *,
        evaluator: Any,
        config_file: Any,
        record_file: Any,
        save_dir: str,
        strategy: Any = "BinarySearch",
        sensitivity: Any = "CosineSimilarity",
        options: SearchOptions | None = None,
    ) -> None:
        config, self._record_file = a_path("config_file", config_file), a_path("record_file", record_file)
        self._results = results_of(save_dir)
        super().__init__(evaluator, strategy, sensitivity, folder=self._results.folder, options=options)
        self._flavour, self._files = flavour, files
        self._check_paths(config, save_dir)
        self._opened: AmctModel = open_model(flavour, files, config)
        self._records: dict[str, LayerRecord] = {}
        self._built: dict[str, LayerRecord] = {}
        self._observer: CalibrationObserver | None = None
        self._work = Path()

    def _check_paths(self, config_file: Path, save_dir: str) -> None:
        """The user's files are only read, whatever they are called."""
        results = [path for files in self._flavour.results(save_dir) for path in files]
        reports = [self.folder / name for name in (RANKING, FINAL_CONFIG, BEST_EFFORT_CONFIG)]
        written = [*results, self._results.info, *reports, self.history_path, self._record_file]
        keep_apart(written, [*self._files, config_file])

    def run(self) -> AutoCalibrationResult:
        """Search, and deliver the best model found; what it takes in between is removed in any case."""
        make_folder(self.folder)
        with alone_in(self.folder, option="save_dir"), contextlib.ExitStack() as ending:
            with writing(self.folder, option="save_dir"):
                clear_up(self.history_path)
                self._work = ending.enter_context(ScratchFolder(self.folder, start="temp-"))
            return super().run()

    def layers(self) -> Iterable[str]:
        """The enabled layers of the configuration."""
        return self._opened.config.enabled

    def evaluate_original(self) -> Any:
        """The measure of the user's model."""
        return self.evaluator.evaluate(*map(str, self._files))

    def calibrate(self) -> None:
        """Let the evaluator run the modified model."""
        self._opened, self._records, self._observer = calibrate_by(
            self.evaluator,
            self._opened,
            source=self._files,
            record_file=self._work / "record.txt",
            work=self._work,
        )

    def rank(self, sensitivity: SensitivityBase) -> Mapping[str, float]:
        """Each layer alone, on the inputs it had in calibration."""
        if self._observer is None:
            raise RuntimeError("ranked before calibrated")
        return rank_layers(self._observer, self._opened, self._records, sensitivity=sensitivity)

    def build(self, enabled: Mapping[str, bool], algorithm: str) -> None:
        """Write the models, from what calibration has observed."""
        records = self._records
        if algorithm and self._observer is not None:
            records = self._observer.records(self._records, algorithm=algorithm)
        self._built = {name: record for name, record in records.items() if enabled.get(name, True)}
        shutil.rmtree(self._trial, ignore_errors=True)
        self._flavour.write_results(
            self._prefix, self._opened.recorded(self._built), half_precision=self._opened.config.half_precision
        )

    @property
    def _trial(self) -> Path:
        return self._work / "trial"

    @property
    def _prefix(self) -> str | Path:
        """Folder and prefix of the models that are tried."""
        return self._trial / self._results.prefix if self._results.prefix else f"{self._trial}/"

    def evaluate_built(self) -> Any:
        """The measure of the fake-quant model."""
        fake, _ = self._flavour.results(self._prefix)
        return self.evaluator.evaluate(*map(str, fake))

    def deliver(self) -> tuple[Path, ...]:
        """Move what was written last to where results go, and write its record."""
        made = sorted(self._trial.iterdir())
        with writing(self.folder, option="save_dir"):
            for path in made:
                path.replace(self.folder / path.name)
        write_records(self._record_file, self._built)
        return tuple(self.folder / path.name for path in made)

    def configuration(self, trial: RollBackTrial) -> Mapping[str, Any]:
        """The user's configuration with what the trial changed."""
        document = with_enabled(self._opened.config.document, trial.roll_back_config)
        if trial.algorithm:
            return with_algorithm_keys(document, set(self._opened.config.enabled), trial.algorithm)
        return document
