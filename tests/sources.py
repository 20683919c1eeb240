"""Tensors in memory, as a source."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roundoff.core.tensors import Array, TensorInfo
from roundoff.errors import BadInput


@dataclass(frozen=True)
class MemorySource:
    """A source of arrays held in memory, the same in each sample unless `by_sample` says otherwise.

    `problems` are known from the start; `broken` tensors fail only when they are read.
    """

    arrays: Mapping[str, Array]
    label: str = "memory"
    samples: tuple[str, ...] = ("",)
    ordered: bool = True
    problems: Mapping[str, str] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    nodes: Mapping[str, str] = field(default_factory=dict)
    by_sample: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return tuple(
            TensorInfo(
                name,
                str(array.dtype),
                array.shape,
                problem=self.problems.get(name, ""),
                node=self.nodes.get(name, ""),
            )
            for name, array in self.arrays.items()
        )

    def read(self, name: str, sample: str) -> Array:
        if name in self.broken:
            raise BadInput(f"{name} is truncated.", fix="dump it again")
        if self.problems.get(name):
            raise BadInput(f"{name} is damaged.", fix="dump it again")
        if sample not in self.samples:
            raise BadInput(f"no sample {sample!r}", fix="name another")
        return np.asarray(self.by_sample.get(sample, self.arrays)[name])


def in_samples(content: Mapping[str, Mapping[str, Array]], **options: Any) -> MemorySource:
    """A source of several samples: sample -> tensor -> values."""
    first = next(iter(content.values()))
    return MemorySource(first, samples=tuple(content), by_sample=content, **options)


def shuffled(arrays: Mapping[str, Array], random: np.random.Generator) -> dict[str, Array]:
    """The same arrays in another order."""
    names = list(arrays)
    return {names[index]: arrays[names[index]] for index in random.permutation(len(names))}
