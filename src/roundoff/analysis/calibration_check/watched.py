"""The tensors whose ranges a calibration set decides, seen sample by sample."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.analysis.calibration_check.held_out import HeldOutRecord
from roundoff.analysis.calibration_check.inputs import InputRecord
from roundoff.analysis.calibration_check.ranges import RangeRecord
from roundoff.analysis.calibration_check.settings import CheckSettings
from roundoff.core.progress import Progress
from roundoff.core.quantizer import QuantSpec
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model
from roundoff.graph.preparation import prepare
from roundoff.graph.weights import Weights
from roundoff.quantize.calibration import (
    Observation,
    Observer,
    get_method,
    observed_range,
    options_of,
    range_error,
)
from roundoff.quantize.parameters import check_finite
from roundoff.quantize.planning import plan_quantization
from roundoff.runtime.capture import LiveSource
from roundoff.runtime.feeds import Samples

__all__ = ["Ranges", "Seen", "Watched", "see", "watched_tensors"]

# Quarters of the set, whose distributions are kept apart; and orders in which they are put together.
_PARTS = 4
_ORDERS = ((0, 1, 2, 3), (1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0), (0, 2, 1, 3), (1, 3, 2, 0))


@dataclass(frozen=True, slots=True)
class Watched:
    """What is watched.

    Attributes:
        model: The float model as it is quantized.
        specs: How each tensor will be quantized, as a whole; in execution order.
        method: Calibration method.
        distribution: Whether the method needs more than the smallest and largest value.
        options: Options of the method.
        inputs: The inputs of the model.
    """

    model: Model
    specs: dict[str, QuantSpec]
    method: str
    distribution: bool
    options: dict[str, float]
    inputs: tuple[str, ...]


def watched_tensors(model: Model, settings: CheckSettings) -> Watched:
    """The tensors that a target quantizes by what is observed, and the inputs.

    Raises:
        BadInput: The model cannot be quantized, has no inputs, or there is no such method.
    """
    name = settings.method or settings.target.calibration.method
    chosen = get_method(name)
    fed = tuple(spec.name for spec in inputs(model) if spec.dtype != "str")
    if not fed:
        what = f"{model.path} has no inputs, so it has no calibration set."
        raise BadInput(what, fix="give a model with inputs")
    prepared = prepare(model)
    plan = plan_quantization(prepared.model, settings.target, origins=prepared.origins, method=name)
    try:
        check_finite(plan, Weights(prepared.model))
    except BadInput as error:
        raise BadInput(error.what, fix="repair the model: no samples make up for that") from error
    specs = {
        each.tensor: each.spec.along(None)
        for each in reversed(plan.quantizers)
        if each.kind == "activation" and each.fixed_range is None
    }
    if not specs:
        what = f"No range of {model.path} depends on samples when it is quantized for {settings.target.name}."
        raise BadInput(what, fix=f"see 'roundoff targets {settings.target.name}', or choose another --target")
    options = options_of(chosen, settings.options)
    ordered = dict(reversed(specs.items()))
    return Watched(prepared.model, ordered, name, chosen.needs != "range", options, fed)


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges by the calibration method, widened to hold zero; float64 [tensors] each.

    Attributes:
        low: Lower ends.
        high: Upper ends.
        outside: Share of the values they were found on that is beyond.
    """

    low: Array
    high: Array
    outside: Array


class Seen:
    """What is remembered of all tensors and samples.

    Args:
        watched: What is watched.
        samples: How many samples there will be.
        seed: Of random orders.
    """

    def __init__(self, watched: Watched, samples: int, *, seed: int) -> None:
        self._watched = watched
        self.record = RangeRecord(len(watched.specs), samples, seed=seed)
        self.count = 0
        self._part = np.random.default_rng(seed).permutation(samples) % _PARTS
        parts = _PARTS if watched.distribution else 0
        self._observers = [[Observer() for _ in range(parts)] for _ in watched.specs]

    def add(self, sample: int, arrays: Sequence[Array], low: Array, high: Array) -> None:
        """See one sample: its tensors, and their smallest and largest values."""
        self.count += 1
        self.record.add(sample, low, high)
        for observers, array in zip(self._observers, arrays, strict=True):
            if observers:
                observers[self._part[sample]].add(array)

    def ranges(self) -> Ranges:
        """The ranges as they are now."""
        if not self._watched.distribution:
            low, high = np.minimum(self.record.low, 0.0), np.maximum(self.record.high, 0.0)
            return Ranges(low, high, np.zeros(low.size))
        rows = [self._range(place, _ORDERS[0]) for place in range(len(self._observers))]
        low, high, outside = (np.array([row[column] for row in rows]) for column in range(3))
        return Ranges(low, high, outside)

    def shares(self) -> tuple[tuple[int, ...], Array]:
        """Numbers of samples, and widths of ranges over those of all, [orders, numbers, tensors]."""
        if not self._watched.distribution:
            return self.record.marks, self.record.shares()
        total = self.record.marks[-1]
        if total < _PARTS:
            return (total,), np.ones((1, 1, len(self._observers)))
        widths = np.empty((len(_ORDERS), 3, len(self._observers)))
        for place in range(len(self._observers)):
            whole = self._width(place, _ORDERS[0])
            for number, order in enumerate(_ORDERS):
                widths[number, :, place] = self._width(place, order[:1]), self._width(place, order[:2]), whole
        last = widths[:, -1:]
        shares = np.divide(widths, last, out=np.ones_like(widths), where=last > 0)
        return (math.ceil(total / 4), math.ceil(total / 2), total), shares

    def _width(self, place: int, parts: Sequence[int]) -> float:
        low, high, _ = self._range(place, parts)
        return high - low

    def _range(self, place: int, parts: Sequence[int]) -> tuple[float, float, float]:
        spec = list(self._watched.specs.values())[place]
        merged = _merged([self._observers[place][part].observation() for part in parts])
        if merged.finite == 0:
            return 0.0, 0.0, 0.0
        low, high = observed_range(merged, spec, self._watched.method, self._watched.options)
        outside = range_error(merged, spec, low, high).clipped if len(parts) == _PARTS else 0.0
        return min(float(low), 0.0), max(float(high), 0.0), outside


def _merged(parts: Sequence[Observation]) -> Observation:
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    return merged


def see(  # noqa: PLR0913 - what to run, on what, and who looks
    watched: Watched,
    samples: Samples,
    indices: Sequence[int],
    *,
    seen: Seen | None,
    fed: InputRecord,
    held_out: HeldOutRecord | None,
    settings: CheckSettings,
    progress: Progress,
) -> None:
    """Run the model over samples; those with NaN or infinite inputs are looked at, and not run.

    Args:
        watched: What is watched.
        samples: What it is fed.
        indices: Which of them.
        seen: Remembers tensors by the numbers of samples; None where they are not part of the set.
        fed: Remembers inputs.
        held_out: Counts what is beyond ranges.
        settings: Limits.
        progress: Told of every sample.
    """
    names = list(watched.specs)
    source = LiveSource(
        watched.model,
        samples,
        tensors=list(dict.fromkeys((*watched.inputs, *names))),
        max_memory=settings.limits.max_memory,
        threads=settings.limits.threads,
    )
    progress.start("looking at samples", len(indices))
    try:
        for index in indices:
            sample = samples.names[index]
            facts = fed.add(index, {name: source.read(name, sample) for name in watched.inputs})
            progress.advance()
            if facts.nonfinite:
                continue
            arrays = [source.read(name, sample) for name in names]
            low, high = np.array(list(_extremes(arrays))).T
            if held_out is not None:
                held_out.add(arrays, low, high)
            if seen is not None:
                seen.add(index, arrays, low, high)
    finally:
        progress.finish()
        source.close()


def _extremes(arrays: Sequence[Array]) -> Iterator[tuple[float, float]]:
    """Smallest and largest finite value of each."""
    for array in arrays:
        observer = Observer(ranges_only=True)
        observer.add(array)
        found = observer.observation()
        yield float(found.low[0]), float(found.high[0])
