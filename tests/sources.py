"""Tensors in memory, as a source."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from roundoff.core.tensors import Array, TensorInfo
from roundoff.errors import BadInput

__all__ = ["MemorySource"]


@dataclass
class MemorySource:
    """`content` is sample -> tensor name -> values; `broken` names tensors that cannot be read."""

    content: Mapping[str, Mapping[str, Array]]
    label: str = "memory"
    ordered: bool = True
    broken: tuple[str, ...] = ()
    ops: Mapping[str, str] = field(default_factory=dict)

    @property
    def samples(self) -> tuple[str, ...]:
        return tuple(self.content)

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        first = next(iter(self.content.values()))
        return tuple(
            TensorInfo(
                name, str(values.dtype), values.shape, node=f"node of {name}", op_type=self.ops.get(name, "")
            )
            for name, values in first.items()
        )

    def read(self, name: str, sample: str) -> Array:
        if name in self.broken:
            raise BadInput(f"{name} is truncated.", fix="dump it again")
        return self.content[sample][name]
