"""The table of faults."""

from collections.abc import Callable

import numpy as np

from benchmarks.planted.case import PlantedCase
from benchmarks.planted.subject import Subject

Fault = Callable[[Subject, np.random.Generator], PlantedCase | None]
"""Plants a fault in a network; None where that network has no place for it."""

FAULTS: dict[str, Fault] = {}


def fault(name: str) -> Callable[[Fault], Fault]:
    """Declare a fault."""

    def declared(plant: Fault) -> Fault:
        if name in FAULTS:
            raise ValueError(f"there are two faults {name!r}")
        FAULTS[name] = plant
        return plant

    return declared
