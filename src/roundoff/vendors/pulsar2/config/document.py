"""From plain values to a message, by the vendor's rules: those of protobuf's JSON.

A key is a field's name, or its name in camelCase. ``null`` means "not given". Numbers may be given as texts, and
members of an enumeration as numbers. All that is wrong is collected, so that it can be said at once.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from roundoff.core.files import reading
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import NOTHING, Message, english, joined, message, verbatim
from roundoff.studies.check_io.result import Correction, Explanation, IoChange, IoCheck, StageCheck
from roundoff.vendors.pulsar2.config.schema import (
    UNPUBLISHED,
    BuildConfig,
    CscMode,
    DataType,
    MessageField,
    message_fields,
)

# What a configuration file says, before anybody asks whether it makes sense; and what is wrong with it.

Place: TypeAlias = "tuple[str | int, ...]"
"""The keys and numbers that lead to a value."""

_MOST_LISTED = 100
"""Whoever has more errors than this has given the wrong file."""

_FIX = english("correct the configuration; 'roundoff explain pulsar2-config.md' lists every key")


@dataclass(frozen=True, slots=True)
class Document:
    """Plain values, and where each of them was said.

    Attributes:
        name: What the document is called in messages.
        value: Dictionaries, lists, texts, numbers, truth values and None.
        origins: Where a value was said, as ``line 3`` or ``--quant.check``; not known for every value.
    """

    name: str
    value: Any
    origins: Mapping[Place, str] = field(default_factory=dict)

    def origin(self, place: Place) -> str:
        """Where a value, or else the nearest around it, was said; empty when that is not known."""
        return next(
            (self.origins[place[:end]] for end in range(len(place), 0, -1) if place[:end] in self.origins), ""
        )


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing that is wrong."""

    place: Place
    text: str


def problem_of(place: Place, error: BadInput, *, called: str = "") -> ConfigProblem:
    """What an error says, as one of many.

    Args:
        place: What in the configuration it is about.
        error: The error.
        called: How its text starts, which the place says already.
    """
    what = error.what.removeprefix(called).strip()
    return ConfigProblem(
        place,
        english("{what}; {fix}", what=what.rstrip("."), fix=error.fix) if error.fix else what.rstrip("."),
    )


def spelled(place: Place) -> str:
    """A place as people write it: ``quant.layer_configs[0].data_type``."""
    return (
        "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".") or "the file"
    )


def refuse(document: Document, problems: Sequence[ConfigProblem]) -> None:
    """Raise an error that lists everything that is wrong; nothing when nothing is.

    Raises:
        BadInput: There are problems.
    """
    if not problems:
        return
    what = english("{name} has {count} {count:error|errors}:", name=document.name, count=len(problems))
    for problem in problems[:_MOST_LISTED]:
        what += english("\n  {problem}", problem=_line(document, problem))
    if len(problems) > _MOST_LISTED:
        what += english("\n  ... and {count} more", count=len(problems) - _MOST_LISTED)
    raise BadInput(what, fix=_FIX)


def _line(document: Document, problem: ConfigProblem) -> str:
    origin = document.origin(problem.place)
    where = f"{f'{origin}: ' if origin else ''}{spelled(problem.place)}"
    return english("{where}: {what}", where=where, what=problem.text)


def located(given: str, base: Path | None, *, what: str = english("The path")) -> Path:
    """A path of the configuration: from the current folder, else from that of the configuration."""
    here = Path(given)
    with reading(here, what=what):
        return here if here.exists() or base is None or not (base / given).exists() else base / given


_Message = TypeVar("_Message")
_WRONG = object()
_SHOWN = 60
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_INT32 = range(-(2**31), 2**31)
# From here on a number is rounded to infinity, when it is stored in the 32 bits that the vendor has for it.
_BEYOND_FLOAT32 = float.fromhex("0x1.ffffffp+127")


def read_message(message: type[_Message], value: Any, *, place: Place, problems: list[ConfigProblem]) -> _Message:
    """Read one message.

    Args:
        message: Its class.
        value: What the document says.
        place: Where that is.
        problems: Takes whatever is wrong; the field in question then has its default.
    """
    known = message_fields(message)
    given: dict[str, Any] = {}
    if not isinstance(value, dict):
        problems.append(
            ConfigProblem(place, english("takes a table of keys and values, not {said}", said=_said(value)))
        )
        return message()
    for key, content in value.items():
        name = key if key in known else _HUMP.sub(r"_\1", str(key)).lower()
        if name not in known:
            problems.append(
                ConfigProblem(
                    (*place, str(key)),
                    english("unknown key; {nearest}", nearest=nearest(str(key)[:_SHOWN], known)),
                )
            )
        elif name in given:
            problems.append(
                ConfigProblem((*place, str(key)), english("is given twice, also as {name!r}", name=name))
            )
        elif content is not None:
            given[name] = _field(known[name], content, (*place, str(key)), problems)
    for name, each in known.items():
        if each.required and given.get(name, "") == "":
            problems.append(ConfigProblem((*place, name), english("must be given")))
    return message(**{name: content for name, content in given.items() if content is not _WRONG})


def _field(field: MessageField, value: Any, place: Place, problems: list[ConfigProblem]) -> Any:
    if not field.repeated:
        return _one(field, value, place, problems)
    if field.bare and isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        problems.append(ConfigProblem(place, english("takes a list, not {said}", said=_said(value))))
        return _WRONG
    read = [_one(field, each, (*place, index), problems) for index, each in enumerate(value)]
    return _WRONG if any(each is _WRONG for each in read) else tuple(read)


def _one(field: MessageField, value: Any, place: Place, problems: list[ConfigProblem]) -> Any:
    if field.is_message:
        return read_message(field.kind, value, place=place, problems=problems)
    if issubclass(field.kind, Enum):
        read, why = _member(field, value)
    else:
        read, why = _READERS[field.kind](value), _EXPECTED[field.kind]
    if read is _WRONG:
        problems.append(
            ConfigProblem(
                place,
                why
                if issubclass(field.kind, Enum)
                else english("takes {why}, not {said}", why=why, said=_said(value)),
            )
        )
    return read


def _member(field: MessageField, value: Any) -> tuple[Any, str]:
    """The member that is meant, or what is wrong."""
    members: dict[str, Enum] = field.kind.__members__  # type: ignore[attr-defined]
    number = _whole(value)
    if number is not _WRONG and number < UNPUBLISHED:
        found = next((member for member in members.values() if member.value == number), None)
    else:
        found = members.get(value) if isinstance(value, str) else None
    offered = field.only or tuple(member for member in members.values() if not _is_default(member))
    allowed = [member.name for member in offered]
    if found is not None and _is_default(found):
        return field.default, ""
    if found is not None and found.name in allowed:
        return found, ""
    return _WRONG, english(
        "cannot be {said}; {nearest}", said=_said(value), nearest=nearest(str(value)[:_SHOWN], allowed)
    )


def _is_default(member: Enum) -> bool:
    """Whether a member stands for whatever is the default."""
    return member.name.startswith("Default")


def _bool(value: Any) -> Any:
    return value if isinstance(value, bool) else _WRONG


def _whole(value: Any) -> Any:
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _INT32 else _WRONG


def _number(value: Any) -> Any:
    try:
        read = _WRONG if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return _WRONG
    return read if read is _WRONG or abs(read) < _BEYOND_FLOAT32 else _WRONG  # type: ignore[arg-type]


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else _WRONG


def _table(value: Any) -> Any:
    return value if isinstance(value, dict) and all(isinstance(key, str) for key in value) else _WRONG


_READERS: dict[type, Callable[[Any], Any]] = {bool: _bool, int: _whole, float: _number, str: _text, dict: _table}
_EXPECTED: dict[type, str] = {
    bool: english("true or false"),
    int: english("a whole number of 32 bits"),
    float: english("a finite number of 32 bits"),
    str: english("a text"),
    dict: english("a table of keys and values"),
}


def _said(value: Any) -> str:
    text = f"{value!r}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


# A configuration as JSON that the vendor's tool reads: its keys alone, members of enumerations by name.


def to_json(config: BuildConfig, *, full: bool = False) -> str:
    """A configuration as text; reading it again gives the same.

    Args:
        config: The configuration.
        full: Write defaults too. Without them older versions of the tool, which lack newer keys, can read it.
    """
    return json.dumps(to_document(config, full=full), indent=2, ensure_ascii=False) + "\n"


def to_document(message: Any, *, full: bool = False) -> dict[str, Any]:
    """A message as plain values."""
    written = {}
    for name, declared in message_fields(type(message)).items():
        value = getattr(message, name)
        if full or declared.required or value != declared.default:
            written[name] = _plain(value, full=full)
    return written


def _plain(value: Any, *, full: bool) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, tuple):
        return [_plain(each, full=full) for each in value]
    return to_document(value, full=full) if hasattr(value, "__dataclass_fields__") else value


# The text by which a configuration gives inputs another shape: ``name:1x3x224x224;name2:1x1x112x112``.

_SIZES = re.compile(r"[0-9]{1,9}(?:[xX][0-9]{1,9})*")


def parse_input_shapes(text: str) -> tuple[dict[str, tuple[int, ...]], tuple[str, ...]]:
    """Read the shapes by the names of inputs, and what is wrong with the text.

    A name may hold colons; what stands behind the last one is the shape.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    wrong: list[str] = []
    for part in (each.strip() for each in text.split(";")):
        name, colon, sizes = (each.strip() for each in part.rpartition(":"))
        if not part:
            continue
        if not colon or not name or not _SIZES.fullmatch(sizes):
            wrong.append(english("{part!r} is not of the form name:1x3x224x224", part=part))
        elif name in shapes:
            wrong.append(english("the input {name!r} has two shapes", name=name))
        elif 0 in (shape := tuple(int(size) for size in re.split("[xX]", sizes))):
            wrong.append(english("{part!r} has an axis of size 0", part=part))
        else:
            shapes[name] = shape
    return shapes, tuple(wrong)


# What a check of inputs and outputs found, as fields of Pulsar2's configuration.

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
