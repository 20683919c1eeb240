"""A text as data: a key of the catalogue, or an English template, and what goes into its gaps.

Results hold messages, never sentences. Words are made when a message is shown, in the reader's language, so that a
name in a gap stays what it is and nothing is ever parsed.
"""

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar, Union

from roundoff.messages.catalogue import (
    Language,
    Phrase,
    current_language,
    is_key,
    translate,
    translation,
    use_language,
)

Argument = Union[str, int, float, bool, None, "Message", tuple["Argument", ...]]
"""What may stand in a gap: names and numbers, or another message; several are listed with commas."""

# The key of texts that no catalogue has: names, what users wrote, sentences of documents before schema 2.
_VERBATIM = "verbatim"
_JOINED = "terminal.semicolon"
_CHAINED = "{before}{after}"
# Where the text of another message begins and ends: there is no space between Chinese characters there.
_END = "\0"
_SPACED = re.compile(f"(?<=[\u4e00-\u9fff])(?:{_END} | {_END})(?=[\u4e00-\u9fff])")


@dataclass(frozen=True, slots=True)
class Message:
    """A text as data. `str` gives it in English, `within` in any language, `shown` in that of the terminal.

    Attributes:
        key: Of the catalogue, as ``causes.clipping_summary``; or the English template itself.
        arguments: What goes into the gaps, by their names, in the order they were given.
    """

    key: str
    arguments: tuple[tuple[str, Argument], ...] = ()

    def within(self, language: Language) -> str:
        """The text in one language."""
        values = dict(self.arguments)
        if self.key == _VERBATIM:
            return str(values["text"])
        if language != "en" and not _is_translated(self.key):
            return self.within("en")
        with use_language(language):
            text = translate(self.key, **{gap: _filled(value, language) for gap, value in values.items()})
        return text if language == "en" else _SPACED.sub("", text).replace(_END, "")

    def __str__(self) -> str:
        return self.within("en")

    def __bool__(self) -> bool:
        """Whether it says anything; documents of schema 1 have empty texts."""
        return self.key != _VERBATIM or bool(dict(self.arguments)["text"])

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        # Documents hold the English text, too, for people and programs that only read; it is not read back.
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            message_of, serialization=core_schema.plain_serializer_function_ser_schema(message_content)
        )


Remark = str | Message
"""What a result notes: a message, or a sentence of a part of the program, or of a document, that has none yet."""


def message(key: str, /, **arguments: Argument) -> Message:
    """A text of the catalogue with what goes into its gaps."""
    return Message(key, tuple(arguments.items()))


class Translatable(str):
    """English that keeps the message it was made of, so that whoever shows it can do so in another language.

    Errors hold it: what handles their texts as strings need not know. What is made of it by other means than
    `english`, `message`, ``+`` and ``str`` is English only.

    Attributes:
        message: What it says.
    """

    __slots__ = ("message",)
    message: Message

    def __new__(cls, source: Message, /) -> "Translatable":
        """The message in English."""
        made = super().__new__(cls, source.within("en"))
        made.message = source
        return made

    def within(self, language: Language) -> str:
        """The text in one language."""
        return self.message.within(language)

    def __str__(self) -> str:
        # Python hands this on as the `str` of an exception that was raised with it.
        return self

    def __add__(self, other: str) -> str:
        return english(_CHAINED, before=self, after=other)

    def __radd__(self, other: str) -> str:
        return english(_CHAINED, before=other, after=self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Translatable, (self.message,)


def english(template: str, /, **gaps: Any) -> str:
    """A text that stands where it is said: the English template is its key in the Chinese catalogue.

    Args:
        template: With gaps as ``str.format`` has them; ``{count:unit|units}`` is the first for one.
        gaps: What goes into them, of any type; what is translatable appears in the reader's language.
    """
    used = _formats(template)
    return Translatable(
        Message(
            template, tuple((gap, _as_argument(value, *used.get(gap, ("", "")))) for gap, value in gaps.items())
        )
    )


def verbatim(text: str) -> Message:
    """A text that is the same in every language."""
    return Message(_VERBATIM, (("text", text),))


NOTHING = verbatim("")
"""In the place of a text that there is none of."""


def joined(parts: Iterable[Message], *, key: str = _JOINED) -> Message:
    """Several texts as one, with semicolons between them.

    Args:
        parts: At least one.
        key: Of another phrase that puts two together, ``before`` and ``after``.

    Raises:
        ValueError: There is none.
    """
    first, *others = parts
    for part in others:
        first = message(key, before=first, after=part)
    return first


def listed(parts: Iterable[str]) -> str:
    """Texts with commas between them, each in the reader's language.

    Args:
        parts: At least one.
    """
    first, *others = parts
    for part in others:
        first = english("{before}, {after}", before=first, after=part)
    return first


def some(names: Sequence[str], most: int, *, quoted: bool = False) -> Argument:
    """The first names for a gap of a message, and how many more there are.

    Args:
        names: All of them.
        most: Name at most so many.
        quoted: In quotation marks, as Python writes them.
    """
    listed = ", ".join(repr(name) if quoted else name for name in names[:most])
    return message("terminal.and_more", names=listed, count=len(names) - most) if len(names) > most else listed


def phrase_of(text: Remark) -> Phrase:
    """A text in all languages, for pages; one that is no message is the same in all."""
    if isinstance(text, Message | Translatable):
        return Phrase(text.within("en"), text.within("zh"))
    return Phrase(text, text)


def as_message(text: Remark) -> Message:
    """A text as a message; English that does not know its own is the same in every language."""
    if isinstance(text, Message):
        return text
    return text.message if isinstance(text, Translatable) else verbatim(text)


def shown(text: Remark) -> str:
    """A message, or an English text that knows its own, in the language of the terminal; any other as it is."""
    return text.within(current_language()) if isinstance(text, Message | Translatable) else text


class _Inserted(str):
    """The text of a message in a gap of another: it is not quoted, whatever the gap asks for."""

    def __repr__(self) -> str:
        return str(self)

    def __format__(self, spec: str) -> str:
        return str(self)


def _filled(value: Argument, language: Language) -> Any:
    if isinstance(value, Message | Translatable):
        text = value.within(language)
        return _Inserted(text if language == "en" else f"{_END}{text}{_END}")
    if isinstance(value, tuple):
        return ("、" if language == "zh" else ", ").join(str(_filled(each, language)) for each in value)
    return value


def _is_translated(key: str) -> bool:
    return is_key(key) or translation(key) is not None


@cache
def _formats(template: str) -> dict[str, tuple[str, str]]:
    """The conversion and the format of each gap."""
    parsed = string.Formatter().parse(template)
    return {gap: (conversion or "", spec or "") for _, gap, spec, conversion in parsed if gap is not None}


def _as_argument(value: Any, conversion: str, spec: str) -> Argument:
    """What a gap holds as data that a document can hold, too, and that looks the same in it."""
    if isinstance(value, Translatable):
        return value.message
    if value is None or isinstance(value, Message) or type(value) in (str, int, float, bool):
        return value  # type: ignore[no-any-return]
    if conversion:
        return verbatim(repr(value) if conversion == "r" else str(value))
    if hasattr(value, "__index__"):
        return int(value)
    if spec:
        return verbatim(format(value, spec))
    text = str(value) if isinstance(value, Exception) else format(value)
    return text.message if isinstance(text, Translatable) else text


def message_content(text: Message) -> str | dict[str, Any]:
    """A message as documents hold it: its English text, and its key with its arguments."""
    if not text:
        return ""
    content: dict[str, Any] = {"text": str(text)}
    if text.key != _VERBATIM:
        content |= {"key": text.key, "arguments": {gap: _plain(value) for gap, value in text.arguments}}
    return content


def _plain(value: Argument) -> Any:
    if isinstance(value, Translatable):
        value = value.message
    if isinstance(value, Message):
        return message_content(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def message_of(content: Any) -> Message:
    """The message that `message_content` wrote down."""
    if isinstance(content, Message | Translatable):
        return content.message if isinstance(content, Translatable) else content
    if isinstance(content, str):  # a document of schema 1
        return verbatim(content)
    if not isinstance(content, Mapping) or not isinstance(content.get("text"), str):
        raise ValueError("a text, or a message with its text, is needed")
    if "key" not in content:
        return verbatim(content["text"])
    arguments = content.get("arguments", {})
    if not isinstance(content["key"], str) or not isinstance(arguments, Mapping):
        raise ValueError("a message has a key and arguments by name")
    found = Message(content["key"], tuple((str(gap), _argument(value)) for gap, value in arguments.items()))
    try:
        if not _is_translated(found.key):  # nothing that only a file brings along is a template
            raise KeyError(found.key)
        str(found)
    except (KeyError, IndexError, TypeError, ValueError):  # written by a version that has other messages
        return verbatim(content["text"])
    return found


def _argument(value: Any) -> Argument:
    if isinstance(value, Mapping):
        return message_of(value)
    if isinstance(value, list | tuple):
        return tuple(_argument(each) for each in value)
    return value  # type: ignore[no-any-return]


# Names and messages as a terminal may show them: models come from strangers, and so do the names in them.


_T = TypeVar("_T")

# Line separators, and what turns the direction of writing or cannot be seen.
_MISLEADING = (0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
_SPOKEN = {ord("\n"): r"\n", ord("\r"): r"\r", ord("\t"): r"\t"}
# Beyond the first 32, which JSON has escaped already, in a way that JSON understands.
_LATER = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_MISLEADING)}
_ALL = {code: f"\\x{code:02x}" for code in range(0x20)} | _LATER | _SPOKEN
_ALL_BUT_NEWLINES = {code: text for code, text in _ALL.items() if code != ord("\n")}

# Names in tables are cut to this many characters: four lines in the narrowest column. Both ends tell tensors of
# one block apart, the last more so.
_LONGEST_NAME, _KEPT_START = 84, 40


def escape_control(text: str, *, newlines: bool = False) -> str:
    """The text with control characters, and such as mislead the eye, shown as escapes.

    Args:
        text: Any text.
        newlines: Keep line feeds, in a text of several lines.
    """
    return text.translate(_ALL_BUT_NEWLINES if newlines else _ALL)


def sanitize_for_display(value: _T) -> _T:
    """A report with all its texts made harmless, for tables and verdicts; the same one where all of them are."""
    return _changed(value)  # type: ignore[no-any-return]


def _changed(value: Any) -> Any:
    if isinstance(value, str):
        shown = value if value.isprintable() else escape_control(value)
        return value if shown == value else shown
    if isinstance(value, Mapping):
        pairs = [(_changed(key), _changed(each)) for key, each in value.items()]
        same = all(new[0] is old[0] and new[1] is old[1] for new, old in zip(pairs, value.items(), strict=True))
        return value if same else dict(pairs)
    if type(value) in (tuple, list, set, frozenset):
        items = [_changed(each) for each in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else type(value)(items)
    if is_dataclass(value) and not isinstance(value, type):
        old = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        new = {name: _changed(each) for name, each in old.items()}
        other = {name: each for name, each in new.items() if each is not old[name]}
        return replace(value, **other) if other else value
    return value


def short_name(name: str) -> str:
    """A name that leaves room for the rest of a table's line: a long one without its middle."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_KEPT_START]}...{name[_KEPT_START + 3 - _LONGEST_NAME :]}"


# Text that is safe in a spreadsheet's cell.

# A cell that starts like this would be run as a formula; names come from strangers' files. The wide signs of
# Chinese and Japanese keyboards count as well.
_FORMULA_START = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def safe_cell(text: str) -> str:
    """The text without control characters, and with the apostrophe that keeps spreadsheets from computing it."""
    shown = text if text.isprintable() else escape_control(text, newlines=True)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA_START) else shown


def cell_text(cell: str) -> str:
    """What a cell of `safe_cell` holds, without that apostrophe; any other text is as it is."""
    return cell[1:] if cell.startswith("'") and cell[1:].lstrip().startswith(_FORMULA_START) else cell
