"""The functions of ``amct_onnx`` by its names, order and defaults: ``import roundoff.vendors.amct.onnx as amct``.

While this module is imported, onnxruntime sessions that are opened on a model written by `quantize_model` or
`quantize_preprocess` are watched: their runs calibrate. `unwatch` ends that; `calibrate` does without it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from roundoff.graph.load import Model, load_model
from roundoff.graph.save import save_model as save_onnx
from roundoff.messages.message import english
from roundoff.vendors.amct.auto import ModelAutoCalibration
from roundoff.vendors.amct.common.auto_calibration import AutoCalibrationResult, SearchOptions
from roundoff.vendors.amct.config import parse_config
from roundoff.vendors.amct.deploy import SaveType, results_of, save_quantized
from roundoff.vendors.amct.layers import LAYER_TYPES, find_layers
from roundoff.vendors.amct.observation import (
    CalibrationStage,
    calibrate,
    forget,
    open_modified,
    unwatch,
    watch,
    write_modified,
)
from roundoff.vendors.amct.quantizers import records_of_qat, weight_quantizers
from roundoff.vendors.amct.records import write_records
from roundoff.vendors.amct.workflow import (
    Files,
    Flavour,
    RecordedModel,
    begin_balancing,
    begin_calibration,
    complete_records,
    convert,
    create_config,
    open_model,
)
from roundoff.vendors.facade import CannotRun, a_path, in_vendors_terms, keep_apart, log_to

__all__ = [
    "AMCT_SO",
    "OnnxFlavour",
    "accuracy_based_auto_calibration",
    "calibrate",
    "convert_model",
    "convert_qat_model",
    "create_quant_config",
    "log_to",
    "quantize_model",
    "quantize_preprocess",
    "save_model",
    "unwatch",
    "watch",
]


class OnnxFlavour(Flavour):
    """One file, read and written as it is; see `roundoff.vendors.amct.workflow.Flavour`."""

    name = "onnx"
    layer_types: Mapping[str, tuple[str, ...]] = {name: (name,) for name in LAYER_TYPES}
    how_to_run = "call run() of a session on it in this process, with roundoff.vendors.amct.onnx imported"

    def read(self, files: Files) -> Model:
        """The model of a file."""
        return load_model(files[0])

    def write_modified(self, files: Files, recorded: RecordedModel, stage: CalibrationStage) -> None:
        """Write the model that is run for calibration."""
        model, layers, records = recorded
        write_modified(files[0], model, weight_quantizers(layers, records), stage=stage)

    def results(self, save_path: str | Path) -> tuple[Files, Files]:
        """The fake-quant and the deploy model."""
        found = results_of(save_path)
        return (found.fake_quant,), (found.deploy,)

    def write_results(
        self, save_path: str | Path, recorded: RecordedModel, *, half_precision: bool, which: SaveType = "Both"
    ) -> None:
        """Write both models and the quantization information, or a part of it."""
        results = results_of(save_path)
        model, layers, records = recorded
        save_quantized(results, model, layers, records=records, half_precision=half_precision, which=which)


_ONNX = OnnxFlavour()


def _session_options() -> Any:
    options = onnxruntime.SessionOptions()
    # Otherwise onnxruntime computes with integer kernels of its own, which differ by a step here and there.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options


AMCT_SO = _session_options()
"""Session options for all models that are written here; ordinary ones serve as well."""


@in_vendors_terms
def create_quant_config(  # noqa: PLR0913, PLR0917 - the vendor's arguments
    config_file: str,
    model_file: str,
    skip_layers: Sequence[str] | None = None,
    batch_num: int = 1,
    activation_offset: bool = True,
    config_defination: str | None = None,
    updated_model: str | None = None,
) -> None:
    """Write the configuration of a model.

    Args:
        config_file: Where it goes.
        model_file: The model.
        skip_layers: Layers that stay in float.
        batch_num: Batches of calibration.
        activation_offset: Whether zero may have any code.
        config_defination: A simplified configuration; it then decides alone, the three before are not used.
        updated_model: Where a copy of the model goes in which every node has a name of its own.
    """
    model, config = a_path("model_file", model_file), a_path("config_file", config_file)
    updated = None if updated_model is None else a_path("updated_model", updated_model)
    keep_apart([config] if updated is None else [config, updated], [model])
    if updated is not None:
        save_onnx(load_model(model), updated, replace=True)
    create_config(
        _ONNX,
        (model,),
        config_file,
        skip_layers=skip_layers,
        batch_num=batch_num,
        activation_offset=activation_offset,
        config_defination=config_defination,
    )


@in_vendors_terms
def quantize_preprocess(config_file: str, record_file: str, model_file: str, modified_onnx_file: str) -> None:
    """Write a model from whose runs the factors for balancing are learned; run it on ``batch_num`` batches.

    Args:
        config_file: The configuration; some layers have a ``dmq_balancer_param``.
        record_file: Where the factors go.
        model_file: The model.
        modified_onnx_file: Where the model to be run goes.
    """
    source, target = a_path("model_file", model_file), a_path("modified_onnx_file", modified_onnx_file)
    config, record = a_path("config_file", config_file), a_path("record_file", record_file)
    keep_apart([target, record], [source, config])
    opened = open_model(_ONNX, (source,), config)
    stage = begin_balancing(opened, record)
    _ONNX.write_modified((target,), opened.recorded({}), stage)


@in_vendors_terms
def quantize_model(config_file: str, model_file: str, modified_onnx_file: str, record_file: str) -> None:
    """Quantize the weights, and write a model from whose runs the factors of activations are learned.

    Run it on ``batch_num`` batches, then call `save_model`.

    Args:
        config_file: The configuration.
        model_file: The model.
        modified_onnx_file: Where the model to be run goes.
        record_file: Where the factors go; after `quantize_preprocess` the file it was given.
    """
    source, target = a_path("model_file", model_file), a_path("modified_onnx_file", modified_onnx_file)
    config, record = a_path("config_file", config_file), a_path("record_file", record_file)
    keep_apart([target, record], [source, config])
    opened = open_model(_ONNX, (source,), config)
    opened, records, stage = begin_calibration(opened, record)
    _ONNX.write_modified((target,), opened.recorded(records), stage)


@in_vendors_terms
def save_model(modified_onnx_file: str, record_file: str, save_path: str, *, fake_quant_form: str = "qdq") -> None:
    """Write the fake-quant model, the deploy model and the quantization information.

    Args:
        modified_onnx_file: What `quantize_model` wrote.
        record_file: The factors, complete.
        save_path: Folder and prefix.
        fake_quant_form: Ours: ``qdq`` for QuantizeLinear and DequantizeLinear, ``chain`` for Mul, Round, Add, Clip
            and Sub.

    Raises:
        CannotRun: Fewer than ``batch_num`` batches were run.
    """
    record, results = a_path("record_file", record_file), results_of(save_path)
    keep_apart(results.files, [record])
    stage, model = open_modified(a_path("modified_onnx_file", modified_onnx_file))
    if stage.kind != "calibration":
        what = english(
            "{modified_onnx_file} was written by quantize_preprocess.", modified_onnx_file=modified_onnx_file
        )
        raise CannotRun(what, fix=english("call quantize_model, run its model, and give that one"))
    layers = find_layers(model, stage.origins)
    config = parse_config(stage.config, layers, name="the configuration")
    save_quantized(
        results,
        model,
        layers,
        records=complete_records(stage, config, record, how=_ONNX.how_to_run),
        half_precision=config.half_precision,
        form=fake_quant_form,
    )
    forget(stage)


@in_vendors_terms
def convert_model(
    model_file: str, scale_offset_record_file: str, save_path: str, *, fake_quant_form: str = "qdq"
) -> None:
    """Quantize a model with factors that somebody else found.

    Args:
        model_file: The float model.
        scale_offset_record_file: The factors; layers that have none stay in float.
        save_path: Folder and prefix.
        fake_quant_form: As for `save_model`.
    """
    record, results = a_path("scale_offset_record_file", scale_offset_record_file), results_of(save_path)
    keep_apart(results.files, [record])
    model, layers, records = convert(_ONNX, (a_path("model_file", model_file),), record)
    save_quantized(results, model, layers, records=records, form=fake_quant_form)


@in_vendors_terms
def convert_qat_model(
    model_file: str, save_path: str, record_file: str | None = None, *, fake_quant_form: str = "qdq"
) -> None:
    """Write AMCT's models for one that was trained with QuantizeLinear and DequantizeLinear.

    Args:
        model_file: The trained model.
        save_path: Folder and prefix.
        record_file: Where its factors go, if anywhere.
        fake_quant_form: As for `save_model`.
    """
    source, results = a_path("model_file", model_file), results_of(save_path)
    record = None if record_file is None else a_path("record_file", record_file)
    keep_apart(results.files if record is None else (*results.files, record), [source])
    model, layers, records = records_of_qat(load_model(source))
    save_quantized(results, model, layers, records=records, form=fake_quant_form)
    if record is not None:
        write_records(record, records)


@in_vendors_terms
def accuracy_based_auto_calibration(  # noqa: PLR0913, PLR0917 - the vendor's arguments
    model_file: str,
    model_evaluator: Any,
    config_file: str,
    record_file: str,
    save_dir: str,
    strategy: Any = "BinarySearch",
    sensitivity: Any = "CosineSimilarity",
    *,
    options: SearchOptions | None = None,
) -> AutoCalibrationResult:
    """Search for a configuration that is good enough; write its models and how it was found.

    Args:
        model_file: The model.
        model_evaluator: An instance of a class derived from `AutoCalibrationEvaluatorBase`.
        config_file: The configuration to begin with; it is only read.
        record_file: Where the factors of the delivered model go.
        save_dir: Folder and prefix.
        strategy: ``BinarySearch``, or an instance of a class derived from `AutoCalibrationStrategyBase`.
        sensitivity: ``CosineSimilarity``, or an instance of a class derived from `SensitivityBase`.
        options: Ours: budgets, the form of the history and the like.

    Returns:
        What the search came to. A goal that cannot be reached is no error: the best model found is delivered, and
        ``met`` says that it is not good enough.
    """
    return ModelAutoCalibration(
        _ONNX,
        (a_path("model_file", model_file),),
        evaluator=model_evaluator,
        config_file=config_file,
        record_file=record_file,
        save_dir=save_dir,
        strategy=strategy,
        sensitivity=sensitivity,
        options=options,
    ).run()


watch()
