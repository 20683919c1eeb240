"""Calibration on the wrong samples."""

import numpy as np

from benchmarks.planted.case import PlantedCase, Truth
from benchmarks.planted.faults.registry import fault
from benchmarks.planted.subject import Subject

__all__: list[str] = []


@fault("narrow-calibration")
def narrow_calibration(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """The model was calibrated on samples of one narrow kind: dark pictures of little contrast."""
    del rng
    quantized = subject.quantization(narrow=True)
    if not subject.costs(quantized):
        return None
    known = Truth("culprits", causes=("calibration-coverage",))
    return subject.case("narrow-calibration", known, quantized=quantized)
