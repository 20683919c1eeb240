"""A minimal reproducer as data: models, inputs, what they should give and what they give."""

from collections.abc import Mapping
from dataclasses import dataclass

from roundoff.core.findings import Measure
from roundoff.core.tensors import Array
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.reproducer.spots import Spot
from roundoff.graph.load import Model

__all__ = ["Reproducer", "ReproducerSample", "Spot", "as_good_as", "clearly_better"]


# The outputs of the whole network are clearly better from this on.
_BETTER_DB = 1.0


def clearly_better(before: Loss, after: Loss) -> bool:
    """Whether the outputs of a network lose clearly less, or agree only then."""
    return after.sqnr_db - before.sqnr_db >= _BETTER_DB or (after.agrees and not before.agrees)


def as_good_as(found: Loss, expected: Loss) -> bool:
    """Whether outputs lose no more than is expected; what nobody notices, such as rounding, is no loss."""
    return found.excess_db(expected) < _BETTER_DB


@dataclass(frozen=True, slots=True, eq=False)
class ReproducerSample:
    """One set of inputs.

    Attributes:
        name: The sample of the run it was taken from.
        inputs: What the part reads.
        expected: What it should give.
        observed: What it gives.
    """

    name: str
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    observed: Mapping[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class Reproducer:
    """The smallest part of a network that shows a fault by itself.

    Attributes:
        nodes: Names and operations of its nodes.
        float_model: The part in float.
        quantized_model: The same with its quantizers; None where none are known.
        samples: What it is fed.
        stored: Whether what was observed is a dump; otherwise the quantized model gives it again.
        spot: Where the fault shows.
        faulty_db: Signal to noise there.
        mended_db: The same without the fault.
        threshold_db: The fault is there at or below this.
        mending: What was changed so that it was gone.
        complement: Outputs of the whole network as it is, and with this part right.
        alone: SQNR of the outputs with nothing but the blamed quantizers on; None where that means nothing.
        passes: Whether the whole network is clearly better with this part right.
        fed: What it is fed, in words, where that is neither the float network's nor a device's.
        observer: What gave what was observed, likewise.
        right: How the whole network was put right, likewise.
        unnoticed: Whether the outputs are right as they are, too: the fault does not reach them.
    """

    nodes: tuple[tuple[str, str], ...]
    float_model: Model
    quantized_model: Model | None
    samples: tuple[ReproducerSample, ...]
    stored: bool
    spot: Spot
    faulty_db: float
    mended_db: float
    threshold_db: float
    mending: str
    complement: Measure | None
    alone: float | None
    passes: bool
    fed: str = ""
    observer: str = ""
    right: str = ""
    unnoticed: bool = False

    @property
    def fed_with(self) -> str:
        """What it is fed, in words."""
        return self.fed or ("the device's own inputs" if self.stored else "what the float network computes")
