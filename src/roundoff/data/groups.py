"""From files to samples: a file may hold one sample, several, or one row of a fixed batch."""

import bisect
from array import array as number_array
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from roundoff.core.names import shown
from roundoff.data.fit import agree_on_count, check_symbols, sample_shape
from roundoff.data.pairing import Paired, unique_names
from roundoff.data.reader import Reader
from roundoff.errors import BadInput

__all__ = ["Grouping", "count_samples", "sample_names"]


@dataclass(frozen=True, slots=True)
class Grouping:
    """Where each sample is.

    Attributes:
        starts: Number of the first sample of each group of files, and at the end the number of all samples.
        stack: How many files together make a sample; 1 unless each holds one row of a fixed batch.
    """

    starts: Sequence[int]
    stack: int

    def locate(self, sample: int) -> tuple[range, int, Fraction]:
        """The groups of files a sample is made of, its place in them, and how many samples each holds."""
        if self.stack > 1:
            return range(sample * self.stack, (sample + 1) * self.stack), 0, Fraction(1, self.stack)
        group = bisect.bisect_right(self.starts, sample) - 1
        count = self.starts[group + 1] - self.starts[group]
        return range(group, group + 1), sample - self.starts[group], Fraction(count)


def count_samples(paired: Paired, readers: Sequence[Reader], *, limit: int | None) -> Grouping:
    """Look into the files, as many as `limit` samples need, and count what they hold.

    Raises:
        BadInput: A file does not fit, or files of one row do not fill whole batches.
    """
    rows = all(column.lone for column in paired.columns)
    starts = number_array("q", [0])
    stack = 1
    for index in range(len(paired.names)):
        if limit is not None and starts[-1] >= limit * stack:
            break
        count = _count(readers, index, rows=rows)
        if index == 0:
            stack = count.denominator
        elif count.denominator != stack:
            raise BadInput(
                f"{_file(readers, index)} holds {_held(count)}, "
                f"but {_file(readers, 0)} holds {_held(Fraction(1, stack))}.",
                fix="store one row per file or whole batches, not both",
            )
        starts.append(starts[-1] + count.numerator)
    if stack > 1 and starts[-1] % stack:
        raise BadInput(
            f"The model takes batches of {stack}, but there are {starts[-1]} files of one row, "
            f"which is no multiple of {stack}.",
            fix=f"add or remove files, or use --samples {starts[-1] // stack}"
            if starts[-1] > stack
            else f"give at least {stack} files",
        )
    return Grouping(starts, stack)


def sample_names(paired: Paired, grouping: Grouping) -> tuple[str, ...]:
    """A name for every sample: its file's; with the number of its row where a file holds several."""
    files = paired.names
    if grouping.stack > 1:
        ends = range(0, grouping.starts[-1], grouping.stack)
        names = [f"{files[first]}..{files[first + grouping.stack - 1]}" for first in ends]
        return unique_names(names, names)
    lone = all(column.lone for column in paired.columns)
    names = []
    for group, (start, end) in enumerate(zip(grouping.starts, grouping.starts[1:], strict=False)):
        if end - start == 1:
            names.append(files[group])
        else:
            names += [str(row) if lone else f"{files[group]}[{row}]" for row in range(end - start)]
    return unique_names(names, names)


def _count(readers: Sequence[Reader], index: int, *, rows: bool) -> Fraction:
    peeked = [reader.peek(index) for reader in readers]
    files = [shown(reader.column.path(index)) for reader in readers]
    count = agree_on_count(
        [reader.counts(stored) for reader, stored in zip(readers, peeked, strict=True)], files, rows=rows
    )
    if count == 0:
        raise BadInput(f"{files[0]} holds no samples: its first axis is 0.", fix="remove it or save it again")
    shapes = [
        (reader.column.spec, sample_shape(stored.shape, reader.column.spec, count))
        for reader, stored in zip(readers, peeked, strict=True)
        if stored is not None
    ]
    check_symbols(shapes, where=files[0])
    return count


def _file(readers: Sequence[Reader], index: int) -> str:
    return shown(readers[0].column.path(index))


def _held(count: Fraction) -> str:
    return "one row of a batch" if count.denominator > 1 else "whole samples"
