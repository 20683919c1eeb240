"""What a check of inputs and outputs found, as fields of Pulsar2's configuration."""

from dataclasses import replace

from roundoff.messages.message import NOTHING, Message, joined, message, verbatim
from roundoff.studies.check_io.result import Correction, Explanation, IoChange, IoCheck, StageCheck
from roundoff.vendors.pulsar2.config.schema import CscMode, DataType

_TYPES = {
    "uint8": DataType.U8,
    "int8": DataType.S8,
    "uint16": DataType.U16,
    "int16": DataType.S16,
    "float16": DataType.FP16,
    "float32": DataType.FP32,
}
_MODES = {"BT.601 full range": CscMode.FullRange, "BT.601 limited range": CscMode.LimitedRange}

# Facts for which fields are told in words.
_WORDED = {"colours": "colours", "order of channels": "channels", "order of U and V": "uv"}


def with_fields(check: IoCheck) -> IoCheck:
    """The same with the vendor's fields in every correction that has some."""
    return replace(check, stages=tuple(_stage(stage) for stage in check.stages))


def _stage(stage: StageCheck) -> StageCheck:
    found = stage.explanation
    return stage if found is None else replace(stage, explanation=_explained(found))


def _explained(found: Explanation) -> Explanation:
    return replace(found, changes=tuple(_change(change) for change in found.changes))


def _change(change: IoChange) -> IoChange:
    if change.correction is None:
        return change
    fields = fields_of(change.correction)
    said = message("pulsar2.fields", fields=fields) if fields else NOTHING
    return replace(change, correction=replace(change.correction, fields=said))


def fields_of(correction: Correction) -> Message:
    """The fields that say what a correction says; empty where the configuration has none for it."""
    facts = dict(correction.facts)
    if "mean of pixels" in facts:
        # The compiler applies them to what it is fed, pixels; what a program did before is left out.
        facts |= {"mean": facts["mean of pixels"], "std": facts["std of pixels"]}
    found = [
        f"{field}: {facts[fact]}"
        for fact, field in (
            ("layout", "src_layout"),
            ("training's layout", "tensor_layout"),
            ("axes", "dst_perm"),
            ("mean", "mean"),
            ("std", "std"),
            ("scale", "scale"),
            ("zero point", "zeropoint"),
        )
        if fact in facts
    ]
    if facts.get("element type") in _TYPES:
        found.append(f"src_dtype: {_TYPES[facts['element type']].name}")
    if "YUV matrix" in facts:
        matrix = facts["YUV matrix"]
        found.append(f"csc_mode: {_MODES.get(matrix, CscMode.Matrix).name}" if matrix else "csc_mode, src_format")
    said = [verbatim(", ".join(found))] if found else []
    said += [message(f"pulsar2.field_{name}") for fact, name in _WORDED.items() if fact in facts]
    fields = joined(said, key="terminal.comma") if said else NOTHING
    if "mean" not in facts:
        return fields
    key = "pulsar2.mean_on_pixels" if "mean of pixels" in facts else "pulsar2.mean_on_deployed"
    return message(key, fields=fields)
