"""A quantized model and samples as a source of tensors, computed with integers."""

from collections.abc import Sequence

from roundoff.core.names import shown
from roundoff.core.quantizer import Quantizer
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array, TensorInfo
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import hidden_tensors
from roundoff.graph.load import Model
from roundoff.graph.shapes import values
from roundoff.runtime.feeds import Samples
from roundoff.runtime.integer.report import IntegerReport
from roundoff.runtime.integer.runner import IntegerRun, IntegerRunner
from roundoff.runtime.measure import complete_values
from roundoff.runtime.runner import read_feed
from roundoff.runtime.selection import select_tensors

__all__ = ["IntegerSource"]


class IntegerSource:
    """Tensors of a quantized model on integer hardware; a `roundoff.core.tensors.TensorSource`.

    It offers what `roundoff.runtime.capture.LiveSource` offers of the float model, under the same names, and holds
    the tensors of one sample, as codes where they have some.

    Args:
        model: The float model.
        quantizers: Its quantizers.
        arithmetic: How the hardware computes.
        samples: What to feed it.
        tensors: Patterns of the tensors to offer; all when empty.
        threads: Threads of matrix products, one by default, and of nodes that run in float, by default all cores.

    Raises:
        BadInput: The first sample does not fit the model, a pattern matches nothing, or a quantizer does not
            belong to the model.
        ModelFailed: The model cannot be run.
    """

    def __init__(
        self,
        model: Model,
        quantizers: Sequence[Quantizer],
        arithmetic: Arithmetic,
        samples: Samples,
        *,
        tensors: Sequence[str] = (),
        threads: int | None = None,
    ) -> None:
        self._model, self._samples = model, samples
        self._runner = IntegerRunner(model, quantizers, arithmetic, threads=threads)
        self._positions = {name: index for index, name in enumerate(samples.names)}
        feed = read_feed(model, samples, 0)
        inferred = values(model, {name: array.shape for name, array in feed.items()})
        everything = complete_values(model, inferred, feed, threads=threads)
        chosen = frozenset(select_tensors(everything, tensors, hidden=hidden_tensors(model)).names)
        self._values = {value.name: value for value in everything if value.name in chosen}
        self._now: tuple[str, IntegerRun] | None = None

    @property
    def label(self) -> str:
        """The model and the samples."""
        return shown(f"{self._model.path} on {self._samples.label}, with integers")

    @property
    def samples(self) -> tuple[str, ...]:
        """Names of the samples."""
        return tuple(self._positions)

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """The tensors offered, in execution order; what cannot be read as numbers has a problem."""
        return tuple(value.info() for value in self._values.values())

    @property
    def ordered(self) -> bool:
        """A model always knows its execution order."""
        return True

    @property
    def report(self) -> IntegerReport:
        """How nodes were computed in the samples read so far."""
        return self._runner.report

    def output_index(self, name: str) -> int:
        """Which output of its node a tensor is; 0 for inputs of the model."""
        return self._values[name].output_index

    def read(self, name: str, sample: str) -> Array:
        """Values of one tensor in one sample; runs the model unless they are held.

        Raises:
            BadInput: There is no such tensor or sample, or the sample does not fit.
            ModelFailed: A node that runs in float failed.
        """
        return self._run(name, sample).values[name]

    def codes(self, name: str, sample: str) -> Array | None:
        """Codes of one tensor in one sample; None when it has none.

        Raises:
            BadInput: There is no such tensor or sample, or the sample does not fit.
            ModelFailed: A node that runs in float failed.
        """
        return self._run(name, sample).codes.get(name)

    def close(self) -> None:
        """Let go of the sample that is held."""
        self._now = None

    def _run(self, name: str, sample: str) -> IntegerRun:
        if name not in self._values:
            raise BadInput(f"{self.label} has no tensor {name!r}.", fix=nearest(name, self._values))
        if self._values[name].obstacle():
            raise BadInput(f"Tensor {name!r} cannot be read: {self._values[name].obstacle()}.", fix="leave it out")
        if sample not in self._positions:
            raise BadInput(f"{self.label} has no sample {sample!r}.", fix=nearest(sample, self._positions))
        if self._now is None or self._now[0] != sample:
            self._now = None
            self._now = sample, self._computed(sample)
        return self._now[1]

    def _computed(self, sample: str) -> IntegerRun:
        wanted = [value.name for value in self._values.values() if not value.obstacle()]
        feed = read_feed(self._model, self._samples, self._positions[sample])
        return self._runner.run(feed, wanted, sample=sample)
