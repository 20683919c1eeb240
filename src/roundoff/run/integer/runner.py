"""Running a model with quantizers the way integer hardware does."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.quantizers import Quantizer
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model
from roundoff.messages.message import english
from roundoff.run.capture import check_feed
from roundoff.run.integer.call import plain_value
from roundoff.run.integer.machine import IntegerExecution, Machine
from roundoff.run.integer.results import Coded, IntegerReport, Result

__all__ = [
    "IntegerRun",
    "IntegerRunner",
]


class _Values(Mapping[str, Array]):
    """Values of results, computed when they are asked for."""

    def __init__(self, held: Mapping[str, Any]) -> None:
        self._held = held

    def __getitem__(self, name: str) -> Array:
        value = self._held[name]
        if isinstance(value, Result):
            return value.real().astype(np.float32, copy=False)
        array: Array = plain_value(value)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


class _Without(Mapping[str, Array]):
    """Values without some of them; none is read before it is asked for."""

    def __init__(self, held: Mapping[str, Array], left_out: frozenset[str]) -> None:
        self._held, self._left_out = held, left_out

    def __getitem__(self, name: str) -> Array:
        if name in self._left_out:
            raise KeyError(name)
        return self._held[name]

    def __contains__(self, name: object) -> bool:
        return name not in self._left_out and name in self._held

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._held if name not in self._left_out)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True, eq=False)
class IntegerRun:
    """What one run computed of the tensors asked for.

    Attributes:
        held: Codes, results and plain arrays by tensor.
    """

    held: Mapping[str, Any]

    @property
    def values(self) -> Mapping[str, Array]:
        """Values: float32 where anything was quantized, of the model's own type elsewhere.

        A tensor with a quantizer has the values of its codes, except an output that leaves the network in float.
        """
        return _Values(self.held)

    @property
    def codes(self) -> dict[str, Array]:
        """Codes of the tensors that have a quantizer."""
        return {name: value.codes for name, value in self.held.items() if isinstance(value, Coded)}


class IntegerRunner:
    """Interprets a float model with quantizers: exact integers between them, the hardware's way of rounding.

    Each node reads the codes of its inputs, computes with whole numbers of any size, and its result is brought to
    the scale of the output, if that has a quantizer. What cannot be computed so runs in float on dequantized
    inputs; `report` names it.

    Args:
        model: The float model.
        quantizers: Its quantizers.
        arithmetic: How the hardware computes.
        threads: Threads of matrix products, one by default, and of nodes that run in float, by default all cores.

    Raises:
        BadInput: A quantizer does not belong to the model.
    """

    def __init__(
        self, model: Model, quantizers: Sequence[Quantizer], arithmetic: Arithmetic, *, threads: int | None = None
    ) -> None:
        self._machine = Machine(model, quantizers, arithmetic, threads=threads)
        self._program = self._machine.program

    @property
    def report(self) -> IntegerReport:
        """What all runs so far met."""
        return self._machine.context.recorder.report()

    def run(
        self, feed: Mapping[str, Array], tensors: Collection[str] | None = None, *, sample: str = ""
    ) -> IntegerRun:
        """Run the whole network.

        Args:
            feed: A value for each input.
            tensors: What to return; the network's outputs by default.
            sample: What the user calls this feed; for messages.

        Raises:
            BadInput: The feed does not fit, or there is no such tensor.
            ModelFailed: A node that runs in float failed.
        """
        check_feed(feed, inputs(self._program.model), sample=sample)
        asked = self._asked(tensors)
        return IntegerRun(IntegerExecution(self._machine, feed, asked, local=False).run())

    def run_local(self, float_values: Mapping[str, Array], tensors: Collection[str] | None = None) -> IntegerRun:
        """Run each unit by itself, fed with the activations of the float model.

        Args:
            float_values: Values of the float model; tensors that are missing are computed, if they can be.
            tensors: What to return; the network's outputs by default.

        Raises:
            BadInput: There is no such tensor, or the float value of an input is missing.
            ModelFailed: A node that runs in float failed.
        """
        asked = self._asked(tensors)
        given = _Without(float_values, self._machine.untold) if self._machine.untold else float_values
        return IntegerRun(IntegerExecution(self._machine, given, asked, local=True).run())

    def _asked(self, tensors: Collection[str] | None) -> frozenset[str]:
        asked = frozenset(outputs(self._program.model) if tensors is None else tensors)
        for name in asked:
            if name not in self._program.tensors:
                what = english("{path} has no tensor {name!r}.", path=self._program.model.path, name=name)
                raise BadInput(what, fix=nearest(name, sorted(self._program.tensors)))
        return asked
