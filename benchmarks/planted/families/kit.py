"""What all families are made with: samples to build on, samples for the user, and what a family hands over."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.planted.pictures import pictures
from roundoff.core.tensors import Array
from roundoff.graph.load import Model

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
        others: As many samples of the same kind as are asked for, which nothing was made or chosen with.
    """

    model: Model
    samples: Mapping[str, Array]
    labels: Array | None
    narrow: Mapping[str, Array]
    others: Callable[[int], Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class Kit:
    """Samples of one seed."""

    train: Mapping[str, Array]
    labels: Array
    samples: Mapping[str, Array]
    sample_labels: Array
    narrow: Mapping[str, Array]
    others: Callable[[int], Mapping[str, Array]]

    @classmethod
    def of_pictures(cls, rng: np.random.Generator, *, readings: int = 0, masked_patches: int = 0) -> "Kit":
        """Pictures; with so many readings of sensors, or a mask of so many patches, beside each of them."""
        apart = rng.spawn(1)[0]
        train, labels = pictures(rng, _TRAINED_ON)
        samples, sample_labels = pictures(rng, SAMPLES)
        narrow, _ = pictures(rng, SAMPLES, brightness=-1.1)
        sets = [{"image": values} for values in (train, samples, narrow)]
        if readings:
            mixing = rng.standard_normal((readings, readings)) / readings**0.5
            for values, spread in zip(sets, (1.0, 1.0, 0.15), strict=True):
                hidden = rng.standard_normal((len(values["image"]), readings)) * spread
                values["readings"] = (hidden @ mixing).astype(np.float32)
        if masked_patches:
            for values in sets:
                values["mask"] = _masks(rng, len(values["image"]), masked_patches)

        def others(count: int) -> Mapping[str, Array]:
            fresh = copy.deepcopy(apart)
            made = {"image": pictures(fresh, count)[0]}
            if readings:
                made["readings"] = (fresh.standard_normal((count, readings)) @ mixing).astype(np.float32)
            if masked_patches:
                made["mask"] = _masks(fresh, count, masked_patches)
            return made

        return cls(sets[0], labels, sets[1], sample_labels, sets[2], others)

    @classmethod
    def of_rows(cls, rng: np.random.Generator) -> "Kit":
        """Pictures without colour, as rows that come one after the other."""
        kit = cls.of_pictures(rng)

        def rows(values: Mapping[str, Array]) -> Mapping[str, Array]:
            return {"rows": values["image"].mean(axis=1)}

        sets = (kit.train, kit.labels, kit.samples, kit.sample_labels, kit.narrow)
        train, labels, samples, sample_labels, narrow = sets
        return cls(
            rows(train), labels, rows(samples), sample_labels, rows(narrow), lambda count: rows(kit.others(count))
        )

    def built(self, model: Model, *, classifies: bool = True) -> Built:
        return Built(model, self.samples, self.sample_labels if classifies else None, self.narrow, self.others)


def _masks(rng: np.random.Generator, count: int, patches: int) -> Array:
    """1 for patches that count; of each picture some at the end do not."""
    kept = rng.integers(patches // 2, patches + 1, count)
    return (np.arange(patches) < kept[:, None]).astype(np.float32)
