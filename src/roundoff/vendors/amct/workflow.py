"""The steps of a quantization, the same for every flavour: configure, prepare, calibrate, save, convert."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from roundoff.core.files import regular_file
from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextEntry, TextMessage
from roundoff.graph.load import Model
from roundoff.graph.preparation.steps import prepare
from roundoff.messages.message import english
from roundoff.vendors.amct.config import (
    ROOT,
    AmctConfig,
    default_document,
    parse_config,
    read_json,
    write_json,
)
from roundoff.vendors.amct.deploy import SaveType, results_of
from roundoff.vendors.amct.layers import TENSOR_TYPES, AmctLayer, find_layers
from roundoff.vendors.amct.observation import (
    CalibrationObserver,
    CalibrationStage,
    forget,
    known_observer,
    new_stage,
    observer_of,
)
from roundoff.vendors.amct.quantizers import balanced_model, weight_records
from roundoff.vendors.amct.records import LayerRecord, read_records, write_records
from roundoff.vendors.amct.simplified_config import read_simplified, simplified_document
from roundoff.vendors.facade import (
    AMCT_LOGGER,
    CannotRun,
    WrongValue,
    a_flag,
    a_path,
    a_positive,
    keep_apart,
    layer_names,
)

Files = tuple[Path, ...]
"""The files of one model: one for ONNX; definition and weights for Caffe."""


class RecordedModel(NamedTuple):
    """A float model, its layers, and the factors by which those of them that have some are quantized."""

    model: Model
    layers: Mapping[str, AmctLayer]
    records: Mapping[str, LayerRecord]


class Flavour(Protocol):
    """A framework; what is not said otherwise is as in ONNX.

    Attributes:
        name: What it is called.
        layer_types: What its users call types of layers, each with the ONNX operations that they become.
        how_to_run: What to do so that a run of a modified model is seen.
        folds_forward: Whether batch normalization in front of a convolution goes into it.
    """

    name: str
    layer_types: Mapping[str, tuple[str, ...]]
    how_to_run: str
    folds_forward: bool = False

    def read(self, files: Files) -> Model:
        """The model of these files as a float ONNX graph.

        Raises:
            BadInput: They cannot be read.
        """
        ...

    def layers(self, model: Model, found: Mapping[str, AmctLayer]) -> dict[str, AmctLayer]:
        """Those of the layers found in a model that are layers of the framework's own."""
        return dict(found)

    def check(self, config: AmctConfig, *, name: str) -> None:
        """Refuse what its models cannot say.

        Raises:
            WrongValue: The configuration, which is called so, asks for it.
        """
        return

    def facts(self, model: Model, layers: Mapping[str, AmctLayer]) -> dict[str, tuple[TextEntry, ...]]:
        """What its records say of layers beside the factors."""
        return dict.fromkeys(layers, ())

    def write_modified(self, files: Files, recorded: RecordedModel, stage: CalibrationStage) -> None:
        """Write the model that is run for calibration, weights being quantized as the records say."""
        ...

    def results(self, save_path: str | Path) -> tuple[Files, Files]:
        """The files of the fake-quant and of the deploy model that go with a path and prefix."""
        ...

    def info(self, save_path: str | Path) -> Path:
        """The quantization information that goes with the deploy model."""
        return results_of(save_path).info

    def write_results(
        self, save_path: str | Path, recorded: RecordedModel, *, half_precision: bool, which: SaveType = "Both"
    ) -> None:
        """Write the fake-quant model, the deploy model with the quantization information, or both."""
        ...


def flavour_of(files: Files) -> Flavour:
    """The framework of a model, by its files."""
    # Both are built on this module; that of ONNX watches sessions from here on.
    if len(files) == 1:
        from roundoff.vendors.amct.onnx import OnnxFlavour

        return OnnxFlavour()
    from roundoff.vendors.amct.caffe import CaffeFlavour

    return CaffeFlavour()


@dataclass(frozen=True, slots=True, eq=False)
class AmctModel:
    """A model and how it is to be quantized.

    Attributes:
        model: The float model, batch normalization folded where the configuration lets it be.
        layers: Its layers.
        origins: For each node of the user's model the one that computes its result.
        config: How they are quantized.
        flavour: What it is of.
    """

    model: Model
    layers: Mapping[str, AmctLayer]
    origins: Mapping[str, str]
    config: AmctConfig
    flavour: Flavour

    def recorded(self, records: Mapping[str, LayerRecord]) -> RecordedModel:
        """The model with these records."""
        return RecordedModel(self.model, self.layers, records)


def create_config(  # noqa: PLR0913 - the vendor's arguments
    flavour: Flavour,
    files: Files,
    config: Any,
    *,
    skip_layers: Any = None,
    batch_num: Any = 1,
    activation_offset: Any = True,
    config_defination: Any = None,
) -> AmctConfig:
    """Write the configuration of a model; with a simplified one, that alone decides.

    Args:
        flavour: What the model is of.
        files: The model.
        config: Where the configuration goes; like all that follows, as the vendor's functions are given it.
        skip_layers: Layers that stay in float.
        batch_num: Batches of calibration.
        activation_offset: Whether zero may have any code.
        config_defination: A simplified configuration.

    Raises:
        WrongType: An argument is of another type.
        WrongValue: A layer is named that is not there, or asked to have what it cannot.
        BadInput: A file cannot be read or written.
    """
    config_file = a_path("config_file", config)
    definition = None if config_defination is None else a_path("config_defination", config_defination)
    skipped, batches = layer_names("skip_layers", skip_layers), a_positive("batch_num", batch_num)
    offset = a_flag("activation_offset", activation_offset)
    keep_apart([config_file], files if definition is None else [*files, definition])
    message = None if definition is None else read_simplified(definition)
    unfused = set() if message is None else {str(each) for each in message.all("skip_fusion_layers")}
    fuse = message is None or bool(message.get("do_fusion", True))
    prepared = prepare(
        flavour.read(files), may_fold=lambda name: fuse and name not in unfused, forward=flavour.folds_forward
    )
    layers = flavour.layers(prepared.model, find_layers(prepared.model, prepared.origins))
    if not layers:
        what = english("Nothing in {files} can be quantized.", files=files[0])
        raise WrongValue(what, fix=english("see 'roundoff targets ascend' for the operations that can be"))
    taken = sorted(set(layers) & set(ROOT))
    if taken:
        what = english("A layer is called {taken!r}, which is a key of configurations.", taken=taken[0])
        raise WrongValue(what, fix=english("give the node another name"))
    if message is None:
        document = default_document(layers, skipped, batch_num=batches, activation_offset=offset)
    else:
        document = simplified_document(message, layers, name=str(definition), types=flavour.layer_types)
    parsed = parse_config(document, layers, name=str(definition or config_file))
    flavour.check(parsed, name=str(definition or config_file))
    _say(parsed.notes)
    write_json(config_file, document)
    return parsed


def open_model(flavour: Flavour, files: Files, config_file: Path) -> AmctModel:
    """Open a model with its configuration.

    Raises:
        WrongValue: The configuration does not fit the model.
        BadInput: A file cannot be read.
    """
    document = read_json(config_file, what=english("The configuration"))
    loose = parse_config(document, None, name=str(config_file))
    prepared = prepare(flavour.read(files), may_fold=loose.may_fold, forward=flavour.folds_forward)
    layers = flavour.layers(prepared.model, find_layers(prepared.model, prepared.origins))
    config = parse_config(document, layers, name=str(config_file))
    flavour.check(config, name=str(config_file))
    _say(config.notes)
    if not config.enabled and not config.tensors:
        what = english("{config_file} leaves nothing to quantize.", config_file=config_file)
        raise WrongValue(what, fix=english('set "quant_enable" of some layers to true'))
    _check_tensors(config, prepared.model)
    return AmctModel(prepared.model, layers, prepared.origins, config, flavour)


def _say(notes: Sequence[str]) -> None:
    for note in notes:
        AMCT_LOGGER.warning(note)


def _check_tensors(config: AmctConfig, model: Model) -> None:
    nodes = {node.name: node for node in model.proto.graph.node}
    for each in config.tensors:
        node = nodes.get(each.layer)
        if node is None or node.op_type not in TENSOR_TYPES or each.input >= len(node.input):
            raise WrongValue(
                "tensor_quantize names input {input} of {layer!r}, which cannot be quantized.",
                fix=english("name an input of {tensor_types}", tensor_types=" or ".join(TENSOR_TYPES)),
                input=each.input,
                layer=each.layer,
            )


def begin_balancing(opened: AmctModel, record_file: Path) -> CalibrationStage:
    """Begin what is observed before calibration: the record is emptied.

    Raises:
        CannotRun: No layer is to be balanced.
    """
    if not any(each.balance is not None for each in opened.config.enabled.values()):
        what = english("No layer of the configuration has a dmq_balancer_param.")
        raise CannotRun(
            what, fix=english("leave quantize_preprocess out, or ask for dmq_balancer in the configuration")
        )
    write_records(record_file, {})
    return new_stage("balance", record_file, opened.config.document, origins=opened.origins)


def begin_calibration(
    opened: AmctModel, record_file: Path
) -> tuple[AmctModel, dict[str, LayerRecord], CalibrationStage]:
    """Begin calibration: the record gets the factors of the weights.

    Returns:
        The model with balanced layers, the records, and what the runs of the modified model are for.

    Raises:
        CannotRun: A layer is to be balanced and nothing was observed for that.
    """
    factors = {}
    wanted = [name for name, each in opened.config.enabled.items() if each.balance is not None]
    known = read_records(record_file) if wanted and record_file.is_file() else {}
    for name in wanted:
        found = known[name].tensor_balance_factor if name in known else ()
        if not found:
            what = english(
                "{record_file} has no tensor_balance_factor of {name!r}, which is to be balanced.",
                record_file=record_file,
                name=name,
            )
            raise CannotRun(what, fix=english("run quantize_preprocess and its model on batch_num batches first"))
        factors[name] = np.asarray(found, np.float32)
    if factors:
        model = balanced_model(opened.model, opened.layers, factors)
        layers = opened.flavour.layers(model, find_layers(model, opened.origins))
        opened = replace(opened, model=model, layers=layers)
    facts = opened.flavour.facts(opened.model, opened.layers)
    records = {
        name: _completed(record, factors.get(name), _facts_of(name, facts, opened.config))
        for name, record in weight_records(opened.model, opened.layers, opened.config).items()
    }
    write_records(record_file, records)
    stage = new_stage("calibration", record_file, opened.config.document, origins=opened.origins)
    return opened, records, stage


def _facts_of(name: str, facts: Mapping[str, tuple[TextEntry, ...]], config: AmctConfig) -> tuple[TextEntry, ...]:
    apart = (TextEntry("skip_fusion", value=True),) if facts[name] and not config.may_fold(name) else ()
    return (*facts[name], *apart)


def _completed(record: LayerRecord, factors: Array | None, facts: tuple[TextEntry, ...]) -> LayerRecord:
    others = TextMessage((*facts, *record.others.entries))
    balance = () if factors is None else tuple(factors.tolist())
    return replace(record, tensor_balance_factor=balance, others=others)


def complete_records(
    stage: CalibrationStage, config: AmctConfig, record_file: Path, *, how: str
) -> dict[str, LayerRecord]:
    """The records of everything that a calibration was for.

    Args:
        stage: Of the modified model.
        config: How layers are quantized.
        record_file: Where the runs of the modified model wrote them.
        how: What to do so that a run is seen.

    Raises:
        CannotRun: It was not finished.
        BadInput: The record cannot be read.
    """
    regular_file(record_file, what=english("The record file"))
    records = read_records(record_file)
    wanted = [*config.enabled, *(each.key for each in config.tensors)]
    missing = [name for name in wanted if name not in records or records[name].scale_d is None]
    if missing:
        observer = known_observer(stage)
        seen = (
            ""
            if observer is None
            else english(
                " {batches} of {batch_num} batches were run.", batches=observer.batches, batch_num=config.batch_num
            )
        )
        raise CannotRun(
            "{record_file} has no scale_d of {missing!r}: calibration was not finished.{seen}",
            fix=english("run the modified model {batch_num} times: {how}", batch_num=config.batch_num, how=how),
            record_file=record_file,
            missing=missing[0],
            seen=seen,
        )
    for name in sorted(set(records) - set(wanted)):
        AMCT_LOGGER.warning(
            english("the record of {name} is not used, the configuration leaves that layer in float", name=name)
        )
    return {name: records[name] for name in wanted}


def convert(flavour: Flavour, files: Files, record_file: Path) -> RecordedModel:
    """A model with factors that somebody else found.

    Raises:
        WrongValue: They do not fit the model.
        BadInput: A file cannot be read.
    """
    records = read_records(record_file)
    unfused = {name for name, record in records.items() if record.others.get("skip_fusion")}
    prepared = prepare(
        flavour.read(files), may_fold=lambda name: name not in unfused, forward=flavour.folds_forward
    )
    layers = flavour.layers(prepared.model, find_layers(prepared.model, prepared.origins))
    factors: dict[str, Any] = {
        name: np.asarray(record.tensor_balance_factor, np.float32)
        for name, record in records.items()
        if record.tensor_balance_factor and name in layers
    }
    if not records:
        raise WrongValue(
            "{record_file} holds no record.", fix=english("give the record of this model"), record_file=record_file
        )
    model = balanced_model(prepared.model, layers, factors)
    return RecordedModel(model, find_layers(model, prepared.origins) if factors else layers, records)


# From a model and its configuration to complete records: an evaluator runs the modified model.


def calibrate_by(
    evaluator: Any, opened: AmctModel, *, source: Files, record_file: Path, work: Path
) -> tuple[AmctModel, dict[str, LayerRecord], CalibrationObserver]:
    """Let an evaluator run the modified model; before that once more if layers are to be balanced.

    Args:
        evaluator: Its ``calibration`` is called with the files of the modified model.
        opened: The model.
        source: The files it was read from.
        record_file: Where the factors go.
        work: Folder for the modified model and for what it is fed.

    Returns:
        The model with balanced layers, the records, and what was learned.

    Raises:
        CannotRun: The evaluator did not run the model often enough.
    """
    if any(each.balance is not None for each in opened.config.enabled.values()):
        stage = begin_balancing(opened, record_file)
        _run(evaluator, opened, {}, stage=stage, files=_files(source, work, "balance"))
        forget(stage)
    opened, records, stage = begin_calibration(opened, record_file)
    observer = _run(evaluator, opened, records, stage=stage, files=_files(source, work, "calibration"))
    try:
        how = opened.flavour.how_to_run
        return opened, complete_records(stage, opened.config, record_file, how=how), observer
    finally:
        forget(stage)


def _files(source: Files, work: Path, name: str) -> Files:
    return tuple(work / f"{name}{path.suffix}" for path in source)


def _run(
    evaluator: Any, opened: AmctModel, records: Mapping[str, LayerRecord], *, stage: CalibrationStage, files: Files
) -> CalibrationObserver:
    opened.flavour.write_modified(files, opened.recorded(records), stage)
    observer = observer_of(opened.flavour.read(files))
    observer.keep_feeds(files[0].with_suffix(".feeds"))
    try:
        evaluator.calibration(*map(str, files))
    except BaseException:
        forget(stage)
        raise
    return observer
