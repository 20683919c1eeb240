"""Wishes as people write them: ``SELECTOR=PRECISION`` on the command line, and TOML files of them."""

import re
import tomllib
from pathlib import Path
from typing import Any

from roundoff.core.files import read_small
from roundoff.core.quant_plan import FLOAT, PRECISION_PARTS, Precision, Rule
from roundoff.errors import BadInput, nearest

__all__ = ["load_rules", "parse_precision", "parse_rule"]

_DTYPE = re.compile(r"[us][1-9][0-9]?")
# What vendors and people call the same.
_ALIASES = {
    "int4": "s4", "int8": "s8", "int16": "s16", "uint4": "u4", "uint8": "u8", "uint16": "u16",
    "i4": "s4", "i8": "s8", "i16": "s16",
    "fp32": FLOAT, "float32": FLOAT, "f32": FLOAT,
}  # fmt: skip
_PART = f"(?:{'|'.join(PRECISION_PARTS)})=\\w+"
_RULE = re.compile(rf"(?P<selector>.+?)=(?P<precision>\w+|{_PART}(?:,{_PART})*)", re.IGNORECASE | re.DOTALL)
_KIND = re.compile(r"(node|tensor|op|between):", re.IGNORECASE)
_EXAMPLE = "write SELECTOR=PRECISION, e.g. Conv_3=u16, op:Softmax=float or between:x..y=activation=u16,weight=s8"


def parse_rule(text: str) -> Rule:
    """Read ``SELECTOR=PRECISION``.

    Raises:
        BadInput: It is not of that form.
    """
    match = _RULE.fullmatch(text.strip())
    if match is None:
        raise BadInput(f"{text!r} is not a precision rule.", fix=_EXAMPLE)
    precision = parse_precision(match["precision"])
    selector = match["selector"].strip()
    prefix = _KIND.match(selector)
    name = selector[prefix.end() :].strip() if prefix else selector
    kind: Any = prefix[1].lower() if prefix else "any"
    if kind != "between":
        if not name:
            raise BadInput(f"{text!r} names nothing before '='.", fix=_EXAMPLE)
        return Rule(kind, (name,), precision)
    start, dots, end = name.partition("..")
    starts, ends = (tuple(part.strip() for part in side.split(",")) for side in (start, end))
    if not dots or not all(starts) or not all(ends):
        raise BadInput(f"{text!r} does not say between what.", fix="write between:a,b..c,d=u16, with tensor names")
    return Rule("between", starts, precision, ends)


def parse_precision(text: str) -> Precision:
    """Read a dtype for the whole node (``u16``, ``float``) or for parts of it (``activation=u16,weight=s8``).

    A dtype alone is that of activations and output; ``float`` alone is that of the weight as well.

    Raises:
        BadInput: A part or a dtype is unknown, or a part is named twice.
    """
    if "=" not in text:
        dtype = _dtype(text)
        return Precision(dtype, FLOAT if dtype == FLOAT else "", dtype)
    parts: dict[str, str] = {}
    for piece in text.split(","):
        name, equals, value = (word.strip() for word in piece.partition("="))
        if not equals or name.lower() not in PRECISION_PARTS:
            raise BadInput(
                f"{piece.strip()!r} in {text!r} is no part of a node.", fix=nearest(name, PRECISION_PARTS)
            )
        if name.lower() in parts:
            raise BadInput(f"{text!r} names {name} twice.", fix="give each part once")
        parts[name.lower()] = _dtype(value)
    return Precision(**parts)


def _dtype(text: str) -> str:
    word = text.strip().lower()
    dtype = _ALIASES.get(word, word)
    if dtype != FLOAT and not _DTYPE.fullmatch(dtype):
        raise BadInput(f"{text!r} is no precision.", fix=nearest(word, ["u8", "s8", "u16", "s16", "s4", FLOAT]))
    return dtype


def load_rules(path: Path) -> tuple[Rule, ...]:
    """Read a TOML file of ``[[rule]]`` tables; all its errors are named at once.

    Raises:
        BadInput: The file cannot be read, or is not of that form.
    """
    # What checks files is slow to import, and most runs have none.
    from roundoff.quantize.planning.rule_file import check_rules

    data = read_small(path, what="The file of rules")
    try:
        content = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{path} is not valid TOML: {error}.", fix="correct it") from error
    return check_rules(content, path)
