"""Numbers as text, one function for each quantity: as many digits as mean something, never rounded up to perfect.

`decibels`, `decibels_with_unit` and, in sentences that documents hold in English, `decibels_text`; `score_text`
for any metric by its name; `percentage` and `share_text` for shares; `number` for values; `counted`, `time_text`,
`duration_text` and `format_size` for what their names say. What has no noise is ``exact``.
"""

import csv
import io
import math
import re
import time
from collections.abc import Callable, Iterable, Sequence

from roundoff.errors import BadInput
from roundoff.messages.catalogue import current_language, named, translate
from roundoff.messages.message import Argument, Message, english, message, safe_cell, verbatim

# Numbers of things in words.

EXACT_DB = 150.0
"""Float32 itself keeps less: from this on two sides are equal but for what nobody sees."""

_MOST_NAMED = 3


def counted(number: int, noun: str) -> str:
    """A number and its noun, with an s unless there is exactly one: ``1 tensor``, ``2 tensors``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def decibels_text(value: float) -> str:
    """Decibels in an English sentence, as documents hold them: ``31.5 dB``, ``exact``."""
    return "exact" if value >= EXACT_DB else f"{value:.1f} dB"


def decibels_message(value: float) -> Message:
    """Decibels in a gap of a message: ``31.5 dB``, ``exact``."""
    return message("common.exact") if value >= EXACT_DB else verbatim(f"{value:.1f} dB")


def first_of(names: Sequence[str], most: int) -> str:
    """The first names, and dots where there are more."""
    return ", ".join(names[:most]) + (" ..." if len(names) > most else "")


def nonfinite_note(noun: str, names: Sequence[str]) -> tuple[Message, ...]:
    """A note on things whose values are not all finite; none when there are no such things.

    Args:
        noun: What they are, as ``tensor``.
        names: What they are called.
    """
    if not names:
        return ()
    things = message(f"counts.{noun}", count=len(names))
    return (message("counts.nonfinite", things=things, names=first_of(names, _MOST_NAMED)),)


BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN_BLOCKS = "_.-~=+*#"
"""The same heights for terminals that know ASCII alone."""

# Scores up to 1 whose distance from 1 is what matters.
_NEAR_ONE = frozenset({"cosine", "within_1e3", "within_5e3"})
_MEAN = "mean_"
TOP1 = frozenset({"top-1 accuracy", "top-1 agreement"})
_SHARES = TOP1 | {"accuracy", "same_top1"}
"""Shares of samples, in per cent wherever they stand."""


def in_decibels(name: str) -> bool:
    """Whether a score is one of decibels; their names say so."""
    return name.endswith("_db")


def score_heading(name: str) -> str:
    """What a column of scores is called, with the unit of decibels."""
    return f"{score_name(name)} dB" if in_decibels(name) else score_name(name)


def score_name(name: str) -> str:
    """What people read for the name of a score, in their language; an evaluator's is its own."""
    known = named(f"metrics.{name}")
    if known is None and name.startswith(_MEAN) and named(f"metrics.{name.removeprefix(_MEAN)}"):
        return translate("metrics.mean_of", name=score_name(name.removeprefix(_MEAN)))
    return name if known is None else known.within(current_language())


def score_message(name: str) -> Argument:
    """The name of a score for a gap of a message."""
    return name if named(f"metrics.{name}") is None else message(f"metrics.{name}")


def score_text(name: str, value: float | None, *, decimals: int = 5) -> str:
    """A score in a table.

    Args:
        name: Of the score.
        value: Its value; nothing is shown for None.
        decimals: How many, of those whose distance from 1 is what matters.
    """
    if value is None:
        return ""
    if in_decibels(name):
        return decibels(value)
    if name.removeprefix(_MEAN) in _NEAR_ONE and math.isfinite(value):
        return _below_one(value, decimals)
    if name.removeprefix(_MEAN) in _SHARES and 0 <= value <= 1:
        return share_text(value, 1)
    text = f"{value:.4g}"
    return _below_one(value, decimals) if text == "1" and value < 1 else text


def named_score(name: str, value: float) -> str:
    """A score with its name and unit, as in a sentence: ``SQNR 32.6 dB``, ``cosine 0.99970``."""
    return f"{score_name(name)} {decibels_with_unit(value) if in_decibels(name) else score_text(name, value)}"


def _below_one(value: float, decimals: int) -> str:
    """Rounded; 1.00000 is shown only for what really is 1."""
    text = f"{value:.{decimals}f}"
    return f"{1 - 10**-decimals:.{decimals}f}" if value < 1 and float(text) == 1 else text


def percent_digits(share: float, decimals: int = 2) -> str:
    """A share in per cent without its sign; with decimals, 100 only for what really is all."""
    text = f"{100 * share:.{decimals}f}"
    rounded_up = decimals > 0 and share < 1 and float(text) == 100
    return f"{100 - 10**-decimals:.{decimals}f}" if rounded_up else text


def percent_number(share: float, digits: int = 2) -> str:
    """A share in per cent with a few significant digits, without its sign; a large one has no exponent."""
    text = f"{100 * share:.{digits}g}"
    return percent_digits(share, 1).removesuffix(".0") if "e+" in text else text


def share_text(share: float, decimals: int = 2) -> str:
    """A share in per cent with so many decimals: ``97.60 %``."""
    return f"{percent_digits(share, decimals)} %"


def text_curve(
    values: Sequence[float | None],
    limits: tuple[float, float],
    *,
    width: int,
    higher_is_better: bool = True,
    blocks: str = BLOCKS,
) -> str:
    """A curve in one line; good values are high, whichever way the score goes.

    Args:
        values: From left to right; where several share a place the worst of them is shown, where none is known a
            blank.
        limits: The smallest and the largest value that all curves to be compared have.
        width: At most so many characters.
        higher_is_better: Which way the score is better.
        blocks: Characters of growing height.
    """
    low, high = limits
    columns = min(width, len(values))
    line = []
    for column in range(columns):
        part = values[column * len(values) // columns : (column + 1) * len(values) // columns]
        known = [value for value in part if value is not None]
        if not known:
            line.append(" ")
            continue
        worst = min(known) if higher_is_better else max(known)
        height = _height(worst, low, high)
        line.append(blocks[round((height if higher_is_better else 1 - height) * (len(blocks) - 1))])
    return "".join(line)


def _height(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, from 0 to 1."""
    if not low < high:
        return 1.0
    return (min(max(value, low), high) - low) / (high - low)


# How long a bounded piece of work may still take, and a time in words.

_UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))


def duration_text(seconds: float) -> str:
    """A time in its largest unit, or in two of them where that is needed: ``45 s``, ``3 min``, ``1 h 20 min``."""
    if seconds >= _UNITS[0][0]:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    # Rounded first: 59.7 s are a minute.
    unit, name = next((each for each in _UNITS if round(seconds) >= each[0]), _UNITS[-1])
    return f"{round(seconds / unit)} {name}"


class TimeLeft:
    """Tells how long steps that are bounded in number or time may still take.

    Args:
        most: Steps at most, those of earlier runs among them; None for no limit.
        time_s: Seconds from now after which no step is begun; None for no limit.
        clock: Tells the time in seconds.
    """

    def __init__(
        self, most: int | None, time_s: float | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._time, self._clock = most, time_s, clock
        self._began, self._done = clock(), 0

    def step(self, number: int) -> float | None:
        """One more step is over.

        Args:
            number: How many are over, those of earlier runs among them.

        Returns:
            Seconds that it may still take at most, if other steps take as long as those so far; None when nothing
            bounds it.
        """
        self._done += 1
        passed = self._clock() - self._began
        bounds = []
        if self._most is not None:
            bounds.append(passed / self._done * max(self._most - number, 0))
        if self._time is not None:
            bounds.append(max(self._time - passed, 0.0))
        return min(bounds, default=None)


# Numbers in tables: as short as they can be without lying.

# From here on whole minutes and hours say enough.
_LONG_S = 120.0
_SHORT = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_TEN = 10.0


# From here on a value has an exponent.
_EXPONENTS_FROM = 1e6


def number(value: float | None, digits: int = 4) -> str:
    """A value with a few significant digits; nothing when there is none. Thousands have no exponent."""
    if value is None:
        return ""
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+0" in text and abs(value) < _EXPONENTS_FROM else text


def spaced_percent(text: str) -> str:
    """What a user typed, ``99%``, as it is told: ``99 %``."""
    return f"{text.strip().removesuffix('%').rstrip()} %" if text.strip().endswith("%") else text


def percentage(share: float | None) -> str:
    """A share in per cent that is 0 or 100 only when it really is."""
    if share is None:
        return ""
    text = f"{100 * share:.3g}"
    if share < 1 and text == "100":
        return ">99.9 %"
    return "<0.001 %" if 0 < share < 0.00001 else f"{text} %"


def decibels(value: float | None, *, exact: float = EXACT_DB) -> str:
    """Decibels with one decimal; ``exact`` when there is no noise.

    Args:
        value: Nothing is shown for None.
        exact: From here on what is left is no noise.
    """
    if value is None:
        return ""
    return translate("common.exact") if value >= exact else f"{value:.1f}"


def decibels_with_unit(value: float | None) -> str:
    """Decibels with their unit, or that there is no score."""
    if value is None:
        return translate("terminal.no_score")
    return translate("common.exact") if value >= EXACT_DB else f"{value:.1f} dB"


def time_text(seconds: float) -> str:
    """A time in the unit that suits it: ``15 µs``, ``3.2 ms``, ``1.5 s``, ``3 min``."""
    if seconds >= _LONG_S:
        return duration_text(seconds)
    unit, name = next((each for each in _SHORT if seconds >= each[0]), _SHORT[-1])
    return f"{seconds / unit:.2g} {name}" if seconds < _TEN * unit else f"{seconds / unit:.0f} {name}"


def shape_text(shape: Sequence[int]) -> str:
    """A shape as in 1x3x224x224."""
    return "x".join(map(str, shape)) or "scalar"


def csv_text(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV file; what does not exist is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([csv_cell(text) for text in heading])
    for row in rows:
        writer.writerow([csv_cell(value) for value in row])
    return out.getvalue()


def csv_cell(value: object) -> str:
    """A value in a CSV file, with all its digits; no text is run as a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(map(csv_cell, value))
    if isinstance(value, float):
        return repr(float(value))  # numpy's say of what type they are
    return safe_cell(value) if isinstance(value, str) else str(value)


# Numbers of bytes as people write and read them.

_FACTORS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000 ** (power + 1) for power, letter in enumerate("kmgt")},
    **{f"{letter}ib": 1024 ** (power + 1) for power, letter in enumerate("kmgt")},
    # "2G" alone means what tools like docker, java and systemd take it for.
    **{letter: 1024 ** (power + 1) for power, letter in enumerate("kmgt")},
}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>[a-z]*)", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of a size like ``500MB`` (millions), ``2GiB`` or ``2G`` (powers of 1024), ``1.5 GB`` or ``4096``.

    Raises:
        BadInput: It is not a size, or is zero.
    """
    found = _SIZE.fullmatch(text.strip())
    factor = _FACTORS.get(found["unit"].lower()) if found else None
    size = float(found["number"]) * factor if found and factor else 0.0
    if not 1 <= size < math.inf:
        raise BadInput(
            english("{text!r} is not a size.", text=text), fix=english("write it like 500MB, 2GiB or 1.5GB")
        )
    return int(size)


def parse_number(text: str) -> float:
    """A number or a quotient of two, such as ``1/127.5``.

    Raises:
        ValueError: It is neither, or not finite.
    """
    numerator, slash, denominator = text.partition("/")
    above, below = float(numerator), float(denominator) if slash else 1.0
    # An infinite denominator would make a harmless zero of a slip.
    number = above / below if below and math.isfinite(below) else math.nan
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def parse_sizes(text: str) -> tuple[int, ...]:
    """Sizes of axes with an x between them, such as ``3x224x224``.

    Raises:
        ValueError: They are something else.
    """
    sizes = tuple(int(part) for part in text.lower().split("x"))
    if min(sizes) < 1:
        raise ValueError(text)
    return sizes


def format_size(size: int) -> str:
    """A number of bytes in at most four digits, in a form `parse_size` reads: ``512 B``, ``1.5 GB``."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    digits = 0 if unit == "B" or value >= 99.95 else 1
    return f"{value:.{digits}f} {unit}"
