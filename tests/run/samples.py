"""Samples in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roundoff.core.tensors import Array


@dataclass
class MemorySamples:
    """`feeds` holds one feed per sample; `asked` records which were read."""

    feeds: Sequence[Mapping[str, Array]]
    label: str = "memory"
    asked: list[int] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"s{index}" for index in range(len(self.feeds)))

    def feed(self, index: int) -> Mapping[str, Array]:
        self.asked.append(index)
        return self.feeds[index]
