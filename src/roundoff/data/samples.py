"""Sample sets: what a model is fed, one sample at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from roundoff.core.names import shown
from roundoff.core.tensors import Array, InputSpec
from roundoff.data.casting import input_dtype
from roundoff.data.columns import find_columns
from roundoff.data.fit import check_symbols, matches, mismatch
from roundoff.data.groups import Grouping, count_samples, sample_names
from roundoff.data.options import SampleOptions
from roundoff.data.pairing import pair
from roundoff.data.reader import Reader, make_readers
from roundoff.errors import BadInput

__all__ = ["SampleSet", "open_samples"]
_AS_THEY_COME = SampleOptions()


class SampleSet(Protocol):
    """Samples that can be read one at a time, in any order."""

    @property
    def label(self) -> str:
        """Where the samples come from, as the user would name it."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """A distinct name per sample, from the files; may contain ``/``."""
        ...

    @property
    def skipped(self) -> tuple[str, ...]:
        """Files that lie among the samples and were taken for notes."""
        ...

    def __len__(self) -> int:
        """Number of samples, at least one."""
        ...

    def feed(self, index: int) -> dict[str, Array]:
        """Values of each input for one sample, possibly memory-mapped; treat as read-only.

        Raises:
            BadInput: A file is damaged or does not fit its input.
        """
        ...


def open_samples(
    source: Path | str | Mapping[str, Path | str],
    inputs: Sequence[InputSpec],
    options: SampleOptions = _AS_THEY_COME,
) -> SampleSet:
    """Open the samples in a file or folder, or in one per input.

    Headers of array files are checked at once, values and pictures when they are fed.

    Args:
        source: What holds the samples; a mapping names the file or folder of each input.
        inputs: What the model expects.
        options: How to read them.

    Raises:
        BadInput: There are none, they cannot be read, or they do not fit the inputs.
        MissingExtra: They are pictures and Pillow is not installed.
    """
    if not inputs:
        raise BadInput("The model has no inputs, so it takes no samples.", fix="leave --data out")
    for spec in inputs:
        input_dtype(spec)
    place = {name: Path(each) for name, each in source.items()} if isinstance(source, Mapping) else Path(source)
    paired = pair(find_columns(place, inputs, wanted=options.format))
    readers = make_readers(paired.columns, options)
    grouping = count_samples(paired, readers, limit=options.limit)
    skipped = dict.fromkeys(name for column in paired.columns for name in column.skipped)
    return _FileSamples(
        label=_label(place),
        names=sample_names(paired, grouping)[: options.limit],
        skipped=tuple(skipped),
        _readers=readers,
        _grouping=grouping,
    )


@dataclass(frozen=True, slots=True)
class _FileSamples:
    label: str
    names: tuple[str, ...]
    skipped: tuple[str, ...]
    _readers: tuple[Reader, ...]
    _grouping: Grouping

    def __len__(self) -> int:
        return len(self.names)

    def feed(self, index: int) -> dict[str, Array]:
        if not 0 <= index < len(self.names):
            raise IndexError(f"sample {index} of {len(self.names)}")
        groups, row, count = self._grouping.locate(index)
        feed: dict[str, Array] = {}
        for reader in self._readers:
            parts = [reader.take(group, row, count=count) for group in groups]
            feed[reader.column.spec.name] = _joined(parts, reader, groups)
        where = f"{self.label}, sample {self.names[index]}"
        check_symbols(((r.column.spec, feed[r.column.spec.name].shape) for r in self._readers), where=where)
        return feed


def _joined(parts: Sequence[Array], reader: Reader, groups: range) -> Array:
    """One array of the input's shape from one array, or from the rows of a batch."""
    spec = reader.column.spec
    for part, group in zip(parts, groups, strict=True):
        if part.shape[1:] != parts[0].shape[1:] or not _fits(part.shape[1:], spec):
            raise mismatch(
                shown(reader.column.path(group)),
                spec,
                f"{part.dtype.name} {list(part.shape)}",
                why=f"the batch began with {list(parts[0].shape)}" if len(parts) > 1 else "",
                fix="give all rows of a batch the same shape",
            )
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _fits(tail: tuple[int, ...], spec: InputSpec) -> bool:
    return spec.shape is None or matches(tail, spec.shape[1:])


def _label(source: Path | Mapping[str, Path]) -> str:
    if isinstance(source, Mapping):
        return ", ".join(f"{name}={shown(path)}" for name, path in source.items())
    return shown(source)
