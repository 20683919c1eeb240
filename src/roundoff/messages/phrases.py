"""Parts of sentences that all terminal texts share, in the language of the terminal."""

from collections.abc import Sequence

from rich.text import Text

from roundoff.messages.catalogue import current_language, named, translate


def count_of(number: int, noun: str) -> str:
    """A number and its noun: ``1 tensor``, ``2 tensors``."""
    return translate(f"counts.{noun}", count=number)


def cause_name(cause: str) -> str:
    """What a cause of a loss is called."""
    name = named(f"diagnosis.cause_{cause}")
    return cause if name is None else name.within(current_language())


def cost_name(cost: str) -> str:
    """What a class of costs is called."""
    return translate(f"diagnosis.cost_{cost.replace(' ', '_')}")


def few(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:most])
    return translate("terminal.and_more", names=shown, count=len(names) - most) if len(names) > most else shown


def commas(*parts: str) -> str:
    """Parts of a sentence with commas between them; empty ones are left out."""
    return _joined("terminal.comma", parts)


def semicolons(*parts: str) -> str:
    """Sentences with semicolons between them; empty ones are left out."""
    return _joined("terminal.semicolon", parts)


def sentences(*parts: str) -> str:
    """Whole sentences, one after the other; only some languages put a space between them."""
    return ("" if current_language() == "zh" else " ").join(parts)


def _joined(key: str, parts: Sequence[str]) -> str:
    text = ""
    for part in filter(None, parts):
        text = translate(key, before=text, after=part) if text else part
    return text


def headline(word: str, style: str, text: str) -> Text:
    """A verdict: one word that stands out, and what it is about, which may begin with a colon."""
    space = " " if text[:1].isascii() and not text.startswith(":") else ""
    return Text(word, style=style) + Text(f"{space}{text}")
