"""The functions of the Caffe flavour: their names, order and defaults are AMCT's."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from roundoff.core.files import model_files
from roundoff.core.tensors import Array
from roundoff.vendors.amct.arguments import a_flag, a_path, a_positive, keep_apart, layer_names, run_batches
from roundoff.vendors.amct.auto import ModelAutoCalibration
from roundoff.vendors.amct.caffe.flavour import CaffeFlavour
from roundoff.vendors.amct.common.auto_calibration.driver import AutoCalibrationResult, SearchOptions
from roundoff.vendors.amct.flavour import Files
from roundoff.vendors.amct.logging import LOGGER
from roundoff.vendors.amct.modified import CalibrationStage
from roundoff.vendors.amct.records import LayerRecord
from roundoff.vendors.amct.results import SaveType
from roundoff.vendors.amct.workflow import (
    AmctModel,
    begin_calibration,
    complete_records,
    convert,
    create_config,
    open_model,
)
from roundoff.vendors.errors import CannotRun, WrongValue, in_vendors_terms

__all__ = [
    "Graph",
    "accuracy_based_auto_calibration",
    "convert_model",
    "create_quant_config",
    "init",
    "quantize_model",
    "run_model",
    "save_model",
    "set_cpu_mode",
    "set_gpu_mode",
]


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """What `init` returns: a model with weights quantized, ready to be calibrated."""

    opened: AmctModel
    records: dict[str, LayerRecord]
    stage: CalibrationStage
    record_file: Path


_CAFFE = CaffeFlavour()


def _files(model_file: Any, weights_file: Any) -> Files:
    return a_path("model_file", model_file), a_path("weights_file", weights_file)


def _known(graph: Any) -> Graph:
    if not isinstance(graph, Graph):
        raise CannotRun(f"graph is {type(graph).__name__}, not what init() returned.", fix="call init() first")
    return graph


def set_cpu_mode() -> None:
    """Compute on the processor, as is always done here."""


def set_gpu_mode() -> None:
    """Ask for a graphics card; said is that the processor is used all the same."""
    LOGGER.warning("models are run on the processor, also in GPU mode")


@in_vendors_terms
def create_quant_config(  # noqa: PLR0913, PLR0917 - the vendor's arguments
    config_file: str,
    model_file: str,
    weights_file: str,
    skip_layers: Sequence[str] | None = None,
    batch_num: int = 1,
    activation_offset: bool = True,
    config_defination: str | None = None,
) -> None:
    """Write the configuration of a model; see `roundoff.vendors.amct.onnx.create_quant_config`."""
    create_config(
        _CAFFE,
        _files(model_file, weights_file),
        a_path("config_file", config_file),
        skip_layers=layer_names("skip_layers", skip_layers),
        batch_num=a_positive("batch_num", batch_num),
        activation_offset=a_flag("activation_offset", activation_offset),
        definition=None if config_defination is None else a_path("config_defination", config_defination),
    )


@in_vendors_terms
def init(config_file: str, model_file: str, weights_file: str, scale_offset_record_file: str) -> Graph:
    """Open a model, quantize its weights and begin its record."""
    files, config = _files(model_file, weights_file), a_path("config_file", config_file)
    record = a_path("scale_offset_record_file", scale_offset_record_file)
    keep_apart([record], [*files, config])
    opened = open_model(_CAFFE, files, config)
    opened, records, stage = begin_calibration(opened, record)
    return Graph(opened, records, stage, record)


@in_vendors_terms
def quantize_model(graph: Graph, modified_model_file: str, modified_weights_file: str) -> None:
    """Write the model from whose runs the factors of activations are learned."""
    files = _files(modified_model_file, modified_weights_file)
    opened = _known(graph).opened
    keep_apart(files, [*model_files(opened.model.path), graph.record_file])
    _CAFFE.write_modified(files, opened.model, layers=opened.layers, records=graph.records, stage=graph.stage)


@in_vendors_terms
def run_model(model_file: str, weights_file: str, feeds: Iterable[Mapping[str, Any]]) -> list[dict[str, Array]]:
    """Ours: run a model on batches without Caffe; runs of a modified model calibrate.

    Args:
        model_file: The definition.
        weights_file: The weights.
        feeds: Batches, each a value for every input.

    Returns:
        For each batch the outputs by name.
    """
    return list(run_batches(_CAFFE.read(_files(model_file, weights_file)), feeds))


@in_vendors_terms
def save_model(graph: Graph, save_type: str, save_path: str) -> None:
    """Write the fake-quant model, the deploy model, or both.

    Raises:
        CannotRun: Fewer than ``batch_num`` batches were run.
        WrongValue: There is no such type.
    """
    which: Any = save_type
    if which not in get_args(SaveType):
        raise WrongValue(f"save_type is {save_type!r}.", fix="choose 'Fakequant', 'Deploy' or 'Both'")
    opened = _known(graph).opened
    _CAFFE.write_results(
        save_path,
        opened.model,
        layers=opened.layers,
        records=complete_records(graph.stage, opened.config, graph.record_file, how=_CAFFE.how_to_run),
        half_precision=opened.config.half_precision,
        which=which,
    )


@in_vendors_terms
def convert_model(model_file: str, weights_file: str, scale_offset_record_file: str, save_path: str) -> None:
    """Quantize a model with factors that somebody else found."""
    record = a_path("scale_offset_record_file", scale_offset_record_file)
    model, layers, records = convert(_CAFFE, _files(model_file, weights_file), record)
    _CAFFE.write_results(save_path, model, layers=layers, records=records, half_precision=False)


@in_vendors_terms
def accuracy_based_auto_calibration(  # noqa: PLR0913, PLR0917 - the vendor's arguments
    model_file: str,
    weights_file: str,
    model_evaluator: Any,
    config_file: str,
    record_file: str,
    save_dir: str,
    strategy: Any = "BinarySearch",
    sensitivity: Any = "CosineSimilarity",
    *,
    options: SearchOptions | None = None,
) -> AutoCalibrationResult:
    """Search for a configuration that is good enough; see `roundoff.vendors.amct.onnx`."""
    search = ModelAutoCalibration(
        _CAFFE,
        _files(model_file, weights_file),
        evaluator=model_evaluator,
        config_file=a_path("config_file", config_file),
        record_file=a_path("record_file", record_file),
        save_dir=save_dir,
        strategy=strategy,
        sensitivity=sensitivity,
        options=options,
    )
    return search.run()
