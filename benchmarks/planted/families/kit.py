"""What all families are made with: samples to build on, samples for the user, and what a family hands over."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.planted.pictures import pictures
from roundoff.core.tensors import Array
from roundoff.graph.load import Model

__all__ = ["SAMPLES", "Built", "Kit"]

_TRAINED_ON = 600
SAMPLES = 36
"""How many samples a user has: a few dozen."""


@dataclass(frozen=True, slots=True)
class Built:
    """A float network with samples.

    Attributes:
        model: The network.
        samples: What the user has, by input, samples along the first axis.
        labels: Their classes; None where the network does not classify.
        narrow: Samples of one narrow kind, on which nobody should calibrate.
    """

    model: Model
    samples: Mapping[str, Array]
    labels: Array | None
    narrow: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Kit:
    """Samples of one seed."""

    train: Mapping[str, Array]
    labels: Array
    samples: Mapping[str, Array]
    sample_labels: Array
    narrow: Mapping[str, Array]

    @classmethod
    def of_pictures(cls, rng: np.random.Generator, *, readings: int = 0) -> "Kit":
        train, labels = pictures(rng, _TRAINED_ON)
        samples, sample_labels = pictures(rng, SAMPLES)
        narrow, _ = pictures(rng, SAMPLES, brightness=-1.1)
        sets = [{"image": values} for values in (train, samples, narrow)]
        if readings:
            mixing = rng.standard_normal((readings, readings)) / readings**0.5
            for values, spread in zip(sets, (1.0, 1.0, 0.15), strict=True):
                hidden = rng.standard_normal((len(values["image"]), readings)) * spread
                values["readings"] = (hidden @ mixing).astype(np.float32)
        return cls(sets[0], labels, sets[1], sample_labels, sets[2])

    def built(self, model: Model, *, classifies: bool = True) -> Built:
        return Built(model, self.samples, self.sample_labels if classifies else None, self.narrow)
