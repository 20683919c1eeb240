"""Pairing tensors behind a fault: no value fits the float model there, but it fits what its own inputs give."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from roundoff.align import align
from roundoff.core.pairing import TensorPair
from roundoff.core.tensors import Array, TensorInfo, TensorSource
from roundoff.diagnosis.devices.golden import Golden
from roundoff.diagnosis.devices.readout import SURE, Readout
from roundoff.errors import CannotAlign

__all__ = ["with_predicted"]

_ROUNDS = 8


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """Tensors of one sample that are in memory; a `TensorSource`."""

    label: str
    samples: tuple[str, ...]
    arrays: Mapping[str, Array]
    ordered: bool = True

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return tuple(TensorInfo(name, array.dtype.name, array.shape) for name, array in self.arrays.items())

    def read(self, name: str, sample: str) -> Array:
        del sample
        return self.arrays[name]


@dataclass(frozen=True, slots=True, eq=False)
class _Some:
    """Some tensors of a source."""

    source: TensorSource
    names: frozenset[str]

    @property
    def label(self) -> str:
        return self.source.label

    @property
    def samples(self) -> tuple[str, ...]:
        return self.source.samples

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return tuple(info for info in self.source.tensors if info.name in self.names)

    @property
    def ordered(self) -> bool:
        return self.source.ordered

    def read(self, name: str, sample: str) -> Array:
        return self.source.read(name, sample)


def with_predicted(
    readout: Readout, golden: Golden, *, feed: Mapping[str, Array], tensors: Sequence[str]
) -> Readout:
    """Pair what is left by the values that the device's own tensors predict, round by round.

    Args:
        readout: What is paired so far.
        golden: Computes tensors from others.
        feed: Inputs of the first sample.
        tensors: Tensors of the float model that may be used, in execution order.
    """
    for _ in range(_ROUNDS):
        taken = {pair.candidate for pair in readout.pairs.values()}
        left = [info for info in readout.device.tensors if info.name not in taken and not info.problem]
        sizes = {info.size for info in left}
        infos = {info.name: info for info in readout.reference.tensors}
        wanted = [name for name in tensors if name not in readout.pairs and infos[name].size in sizes]
        found = _paired(readout, golden, feed, wanted, frozenset(info.name for info in left)) if left else {}
        if not found:
            break
        together = {**readout.pairs, **found}
        readout = replace(readout, pairs={name: together[name] for name in tensors if name in together})
    return readout


def _paired(
    readout: Readout, golden: Golden, feed: Mapping[str, Array], wanted: Sequence[str], left: frozenset[str]
) -> dict[str, TensorPair]:
    if not wanted:
        return {}
    theirs = readout.samples[0][1]
    values = golden.compute_all(wanted, readout.view(0, feed))
    arrays = {name: values[name] for name in wanted}
    predicted = _Held("what the device's own tensors predict", (theirs,), arrays)
    try:
        pairing = align(predicted, _Some(readout.device, left))
    except CannotAlign:
        return {}
    sure = (pair for pair in pairing.pairs if pair.how == "value" and pair.confidence >= SURE)
    return {pair.reference: pair for pair in sure}
