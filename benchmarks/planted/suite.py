"""All cases of the suite, made one at a time."""

from collections.abc import Iterator
from fnmatch import fnmatch

from benchmarks.planted.case import PlantedCase
from benchmarks.planted.clean import clean_cases
from benchmarks.planted.families import FAMILIES
from benchmarks.planted.faults import FAULTS
from benchmarks.planted.subject import subject
from benchmarks.planted.variants import varied

__all__ = ["cases"]


def cases(seeds: int, *, only: str = "*") -> Iterator[PlantedCase]:
    """Every case of so many networks of each family.

    Args:
        seeds: Networks of each family.
        only: A pattern of names, ``fault/family/seed``.
    """
    for seed in range(seeds):
        for family in FAMILIES:
            for name, plant in FAULTS.items():
                if fnmatch(f"{name}/{family}/{seed}", only):
                    network = subject(family, seed)
                    rng = network.rng(name)
                    case = plant(network, rng)
                    if case is not None:
                        yield varied(case, rng)
            if fnmatch(f"clean-x/{family}/{seed}", only) or only.startswith("clean"):
                yield from (case for case in _clean(family, seed) if fnmatch(case.name, only))


def _clean(family: str, seed: int) -> Iterator[PlantedCase]:
    for make in clean_cases(subject(family, seed)):
        yield make()
