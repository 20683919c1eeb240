"""What a quantized network promises before it is measured: signal to noise of its outputs on a few samples."""

from collections.abc import Mapping
from dataclasses import dataclass

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.agreement import spread
from roundoff.runtime.feeds import Samples
from roundoff.search.judges.running import OutputRunner
from roundoff.search.judges.signals import SignalJudge

__all__ = ["Promise"]

_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class _Some:
    """Some of the samples."""

    samples: Samples
    chosen: tuple[int, ...]

    @property
    def label(self) -> str:
        return self.samples.label

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.samples.names[index] for index in self.chosen)

    def feed(self, index: int) -> Mapping[str, Array]:
        return self.samples.feed(self.chosen[index])


class Promise:
    """Compares outputs of quantized networks with those of the float network, on calibration samples.

    Unlike a metric that counts right answers it tells two networks apart that have all of them wrong; and as the
    samples of the evaluation stay unseen, what is chosen by it is not chosen to suit just these.

    Args:
        model: The float network.
        samples: Calibration samples; some of them are run.
        threads: Threads to use; all cores by default.

    Attributes:
        runs: Samples run for one network, and for that in float.
    """

    def __init__(self, model: Model, samples: Samples, *, threads: int | None = None) -> None:
        self._chosen = spread(len(samples.names), _SAMPLES)
        self._model, self._samples, self._threads = model, samples, threads
        self._judge: SignalJudge | None = None
        self.runs = len(self._chosen)

    def decibels(self, quantized: QuantizedModel) -> float | None:
        """Signal to noise of the outputs; None where they are no numbers to compare.

        Raises:
            ModelFailed: The network cannot be run.
        """
        if self._judge is None:
            some = _Some(self._samples, self._chosen)
            try:
                self._judge = SignalJudge(OutputRunner(self._model, some, threads=self._threads))
            except BadInput:
                return None
        model = switch_on(quantized.float_model, quantized.quantizers)
        return float(self._judge.measure(model, range(self._judge.total)).mean())
