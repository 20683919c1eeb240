"""Accuracy-based auto-calibration of a model, whichever flavour it is of."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roundoff.core.files import writing
from roundoff.core.quantizers import Consumer
from roundoff.core.tensors import Array
from roundoff.graph.blocks import BlockModels
from roundoff.graph.cutting import ModelBlock
from roundoff.graph.shapes import values
from roundoff.run.session import Session, open_session
from roundoff.search.strategies.roll_back import RollBackTrial
from roundoff.studies.sensitivity.ranking import mean_scores
from roundoff.vendors.amct.arguments import keep_apart
from roundoff.vendors.amct.common.auto_calibration import (
    BEST_EFFORT_CONFIG,
    FINAL_CONFIG,
    RANKING,
    AccuracyBasedAutoCalibrationBase,
    AutoCalibrationResult,
    SearchOptions,
    SensitivityBase,
)
from roundoff.vendors.amct.config import with_algorithm_keys, with_enabled
from roundoff.vendors.amct.deploy import make_folder, results_of
from roundoff.vendors.amct.flavour import Files, Flavour
from roundoff.vendors.amct.layers import AmctLayer
from roundoff.vendors.amct.observation import CalibrationObserver
from roundoff.vendors.amct.quantizers import quantizers_of
from roundoff.vendors.amct.records import LayerRecord, write_records
from roundoff.vendors.amct.workflow import AmctModel, calibrate_by, open_model
from roundoff.vendors.errors import CannotRun

__all__ = [
    "ModelAutoCalibration",
    "rank_layers",
]


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
            what = "calibration() ran the modified model where it cannot be seen, so that layers cannot be ranked."
            raise CannotRun(what, fix=opened.flavour.how_to_run)
        found |= scores
    return found


def _first_outputs(sensitivity: SensitivityBase) -> Callable[[list[Array], list[Array]], float]:
    """What a sensitivity says of the output of a layer, flat as the vendor hands it over."""
    return lambda plain, quantized: float(sensitivity.compare(plain[0].ravel(), quantized[0].ravel()))


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
        config_file: Path,
        record_file: Path,
        save_dir: str,
        strategy: Any,
        sensitivity: Any,
        options: SearchOptions | None = None,
    ) -> None:
        self._results = results_of(save_dir)
        super().__init__(evaluator, strategy, sensitivity, folder=self._results.folder, options=options)
        self._flavour, self._files = flavour, files
        self._record_file = record_file
        self._check_paths(config_file, save_dir)
        self._opened: AmctModel = open_model(flavour, files, config_file)
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
        with writing(self.folder, option="save_dir"):
            self._work = Path(tempfile.mkdtemp(prefix="temp", dir=self.folder))
        try:
            return super().run()
        finally:
            shutil.rmtree(self._work, ignore_errors=True)

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
            self._trial / self._results.prefix if self._results.prefix else f"{self._trial}/",
            self._opened.model,
            layers=self._opened.layers,
            records=self._built,
            half_precision=self._opened.config.half_precision,
        )

    @property
    def _trial(self) -> Path:
        return self._work / "trial"

    def evaluate_built(self) -> Any:
        """The measure of the fake-quant model."""
        fake, _ = self._flavour.results(
            self._trial / self._results.prefix if self._results.prefix else f"{self._trial}/"
        )
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
