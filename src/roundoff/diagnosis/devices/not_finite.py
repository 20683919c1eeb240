"""NaN and infinite values on a device: where they come up first, and who only read them."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.messages.message import Message, message

__all__ = ["NotFinite", "find_not_finite"]

_NAMED = 3


@dataclass(frozen=True, slots=True)
class NotFinite:
    """Tensors of a device that are not all numbers.

    Attributes:
        tensors: Those with NaN or infinite values, in execution order.
        as_float: Those of them that are so in the float model, too.
        readers: Tensors that are computed from some of them, about which nothing can be told.
    """

    tensors: tuple[str, ...] = ()
    as_float: frozenset[str] = frozenset()
    readers: frozenset[str] = frozenset()

    def without_wrong_dumps(self, dumps: Collection[str], replay: DeviceReplay) -> "NotFinite":
        """The same, given that the device itself had numbers in these tensors."""
        wrong = frozenset(self.tensors).difference(dumps)
        return replace(self, readers=_readers(replay, wrong))

    @property
    def text(self) -> Message:
        """Where they come up first."""
        first = self.tensors[0]
        if first in self.as_float:
            return message("diagnosis.not_finite_first_both", tensor=first)
        return message("diagnosis.not_finite_first", tensor=first)

    @property
    def notes(self) -> tuple[Message, ...]:
        """What was not judged because of them."""
        if not self.readers:
            return ()
        return (message("diagnosis.note_read_not_finite", count=len(self.readers)),)


def find_not_finite(replay: DeviceReplay) -> NotFinite:
    """Look for NaN and infinite values in what the device wrote."""
    names = (*replay.inputs, *replay.tensors)
    tensors = [name for name in names if _any(replay, name, float_model=False)]
    as_float = frozenset(name for name in tensors if _any(replay, name, float_model=True))
    return NotFinite(tuple(tensors), as_float, _readers(replay, frozenset(tensors)))


def _readers(replay: DeviceReplay, wrong: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in replay.tensors if wrong.intersection(replay.spans[name].reads))


def _any(replay: DeviceReplay, name: str, *, float_model: bool) -> bool:
    read = replay.readout.exact if float_model else replay.readout.read
    return any(not np.isfinite(read(name, sample)).all() for sample in replay.indices)
