"""A text as lines of a terminal: numbers stay with their units, names whole, Chinese breaks as Chinese does."""

import re
from collections.abc import Iterator

from rich.cells import cell_len

# Brackets and quotation marks that begin what follows; marks that end what is before them.
_OPENING = "\uff08\u3010\u300c\u300e\u300a\u201c\u2018\uff3b"
_CLOSING = "\uff0c\u3002\uff1b\uff1a\uff01\uff1f\u3001\uff09\u3011\u300d\u300f\u300b\u201d\u2019\uff3d\uff05\u2026"
# Letters that are two columns wide: lines may end behind any of them.
_WIDE = (
    "\u1100-\u115f\u2e80-\u2fff\u3003-\u3007\u3012-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff"
    "\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uffe0-\uffe6"
)
# Stands for a blank at which no line ends.
_JOINT = "\ue000"
_UNITS = r"%|dB\b|points?\b|bits?\b|(?:ms|µs|s|min|h)\b|[kMGT]?B\b"
_BLANK = re.compile(rf"(?<=\d) (?={_UNITS}|\.\. [-\d]|[{_WIDE}])|(?<=\d \.\.) (?=[-\d])")
_OTHER = rf"[^\s{_WIDE}{_OPENING}{_CLOSING}{_JOINT}]+"
_ATOM = re.compile(
    rf"[{_OPENING}]*(?:{_OTHER}(?:{_JOINT}(?:{_OTHER}|[{_WIDE}]))*|[{_WIDE}])[{_CLOSING}]*(?:(?<=[{_WIDE}])[)\],.;:])*"
    rf"|[{_OPENING}]+|[{_CLOSING}]+"
)


def wrapped_lines(text: str, width: int, *, first: str = "", others: str = "", torn: bool = False) -> list[str]:
    """Lines of a text, in which every number stands before its unit.

    Args:
        text: The text, in the reader's language.
        width: Columns of a line.
        first: What the first line begins with.
        others: What the others begin with.
        torn: Whether a name that is longer than a line goes on in the next; else it reaches beyond the edge.
    """
    lines: list[str] = []
    line = first
    for number, part in enumerate(text.split("\n")):
        if number:
            lines.append(line)
            line = others
        empty = True
        for blank, atom in _atoms(part):
            # Blanks at which a line is broken are gone.
            if empty or cell_len(f"{line}{blank}{atom}") <= width:
                line, empty = f"{line}{blank}{atom}", False
            else:
                lines.append(line)
                line = f"{others}{atom}"
            while torn and cell_len(line) > width:
                start = _fitting(line, width)
                lines.append(line[:start])
                line = f"{others}{line[start:]}"
    return [each.replace(_JOINT, " ").rstrip() for each in [*lines, line]]


def unbroken(text: str, blank: str = "\u00a0") -> str:
    """A text in which the blanks at which no line may end are others, for whoever breaks it elsewhere."""
    return _BLANK.sub(blank, text)


def longest_atom(text: str) -> int:
    """Columns of the longest part of a text that is not torn."""
    return max((cell_len(atom) for _, atom in _atoms(text)), default=0)


def _atoms(text: str) -> Iterator[tuple[str, str]]:
    """What stays together in a text, each with the blanks before it."""
    joined, end = unbroken(text, _JOINT), 0
    for found in _ATOM.finditer(joined):
        yield joined[end : found.start()], found[0]
        end = found.end()


def _fitting(line: str, width: int) -> int:
    """How many characters of a line find room, at least one."""
    used = 0
    for at, character in enumerate(line):
        used += cell_len(character)
        if used > width:
            return max(at, 1)
    return len(line)
