"""A dump under the names, and in the order, of the model it was made from."""

from collections.abc import Sequence
from dataclasses import replace

from roundoff.align.matching import pair_names
from roundoff.core.tensors import Array, TensorInfo, TensorSource
from roundoff.errors import CannotAlign

__all__ = ["rename_after"]


def rename_after(source: TensorSource, model: Sequence[TensorInfo]) -> TensorSource:
    """View a source under a model's tensor names, in the model's order; what the model does not know comes last.

    Args:
        source: Tensors whose names may be spelt as file names or another tool would.
        model: The model's tensors in execution order.

    Raises:
        CannotAlign: No tensor of the source is one of the model's.
    """
    theirs = pair_names(model, source.tensors)
    if not theirs:
        raise CannotAlign(
            f"None of the {len(source.tensors)} tensors of {source.label} has the name of a tensor of the model.",
            fix="give the model that the dump was made from, or leave --model out",
        )
    return _Renamed(source, model, theirs)


class _Renamed:
    """Implements `TensorSource`."""

    ordered = True

    def __init__(self, source: TensorSource, model: Sequence[TensorInfo], theirs: dict[str, str]) -> None:
        known = {info.name: info for info in source.tensors}
        self._source = source
        self._homes = dict(theirs)
        self.label, self.samples = source.label, source.samples
        named = [
            replace(known[theirs[info.name]], name=info.name, node=info.node, op_type=info.op_type, origin="")
            for info in model
            if info.name in theirs
        ]
        taken, used = set(theirs.values()), set(theirs)
        rest = [info for info in source.tensors if info.name not in taken]
        # A stranger may carry the name that a renamed tensor has now.
        strangers = [
            replace(info, name=f"{info.name} (not of the model)" if info.name in used else info.name)
            for info in rest
        ]
        self._homes |= {stranger.name: info.name for stranger, info in zip(strangers, rest, strict=True)}
        self.tensors: tuple[TensorInfo, ...] = (*named, *strangers)

    def read(self, name: str, sample: str) -> Array:
        return self._source.read(self._homes.get(name, name), sample)
