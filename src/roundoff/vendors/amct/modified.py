"""Models to be run for calibration: ordinary ones, whose metadata says what is to be learned from their runs."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from roundoff.core.quantizers import Quantizer
from roundoff.graph.insertion import fake_quant_model
from roundoff.graph.load import Model, load_model, model_from_proto
from roundoff.graph.reading.read import read_quantized
from roundoff.graph.save import save_model
from roundoff.vendors.errors import CannotRun

__all__ = [
    "KEY",
    "CalibrationStage",
    "new_stage",
    "note_stage",
    "open_modified",
    "stage_of",
    "stage_text",
    "without_stage",
    "write_modified",
]

KEY = "roundoff.amct"
"""Where the metadata of a model says that its runs are for calibration."""


@dataclass(frozen=True, slots=True)
class CalibrationStage:
    """What the runs of a model are for.

    Attributes:
        kind: ``calibration``, or ``balance`` for what is observed before that.
        identity: Tells this model from all others.
        record_file: Where the result goes.
        config: The configuration, as its JSON says.
        origins: For each node of the user's model the one that computes its result.
    """

    kind: str
    identity: str
    record_file: str
    config: Mapping[str, Any]
    origins: Mapping[str, str]


def new_stage(
    kind: str, record_file: Path, config: Mapping[str, Any], *, origins: Mapping[str, str]
) -> CalibrationStage:
    """A stage that no other model has."""
    return CalibrationStage(kind, secrets.token_hex(8), str(record_file.absolute()), config, origins)


def write_modified(
    path: Path, model: Model, quantizers: tuple[Quantizer, ...], *, stage: CalibrationStage
) -> None:
    """Write a model whose runs are for calibration, replacing an earlier one.

    Args:
        path: The file.
        model: The float model.
        quantizers: Those of the weights.
        stage: What its runs are for.
    """
    deferred = fake_quant_model(model, quantizers)
    note_stage(deferred.model, stage_text(stage))
    save_model(deferred, path, replace=True)


def stage_text(stage: CalibrationStage) -> str:
    """What the runs of a model are for, in one line."""
    return json.dumps(asdict(stage))


def note_stage(model: Model, text: str) -> None:
    """Write into the metadata of a new model what its runs are for."""
    properties = model.proto.metadata_props
    _remove(properties)
    properties.add(key=KEY, value=text)


def stage_of(metadata: Mapping[str, str]) -> CalibrationStage | None:
    """What the runs of a model are for, by its metadata; None when it is any other model."""
    try:
        return CalibrationStage(**json.loads(metadata[KEY])) if KEY in metadata else None
    except (ValueError, TypeError):
        return None


def without_stage(model: Model) -> Model:
    """The same as an ordinary model."""
    copy = model_from_proto(model.proto, path=model.path)
    _remove(copy.proto.metadata_props)
    return copy


def open_modified(path: Path) -> tuple[CalibrationStage, Model]:
    """What the runs of a model are for, and the float model in it.

    Raises:
        CannotRun: It is no such model.
        BadInput: It cannot be read.
    """
    model = load_model(path)
    stage = stage_of({each.key: each.value for each in model.proto.metadata_props})
    if stage is None:
        what = f"{path} was not written by quantize_model."
        raise CannotRun(what, fix="give the modified model that quantize_model wrote")
    return stage, read_quantized(without_stage(model)).float_model


def _remove(properties: Any) -> None:
    for index in reversed(range(len(properties))):
        if properties[index].key == KEY:
            del properties[index]
