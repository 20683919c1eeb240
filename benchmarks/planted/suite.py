"""All cases of the suite, made one at a time."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from benchmarks.planted.case import PlantedCase
from benchmarks.planted.clean import clean_cases
from benchmarks.planted.families import FAMILIES
from benchmarks.planted.faults import FAULTS
from benchmarks.planted.io_pairs import PairCase, pair_cases
from benchmarks.planted.repairs import RepairCase, repair_cases
from benchmarks.planted.subject import subject
from benchmarks.planted.variants import varied

AnyCase = PlantedCase | PairCase | RepairCase


@dataclass(frozen=True, slots=True)
class Choice:
    """Which cases of the suite are wanted.

    Attributes:
        seeds: Numbers of the networks of each family.
        only: Patterns of names, ``fault/family/seed``, with commas between them.
        part: Which part of how many, by chance: (0, 8) is an eighth of all names.
    """

    seeds: Sequence[int]
    only: str = "*"
    part: tuple[int, int] = (0, 1)

    def wants(self, name: str) -> bool:
        which, count = self.part
        chosen = any(fnmatch(name, each) for each in self.only.split(","))
        return chosen and zlib.crc32(name.encode()) % count == which


def cases(choice: Choice) -> Iterator[AnyCase]:
    """Every case that is wanted, seed by seed."""
    for seed in choice.seeds:
        for family in FAMILIES:
            yield from _of_network(choice, family, seed)
        for name, make in pair_cases(seed):
            if choice.wants(name):
                yield make()


def _of_network(choice: Choice, family: str, seed: int) -> Iterator[AnyCase]:
    for number, (name, plant) in enumerate(FAULTS.items()):
        if choice.wants(f"{name}/{family}/{seed}"):
            network = subject(family, seed)
            rng = network.rng(name)
            case = plant(network, rng)
            if case is not None:
                yield varied(case, rng, number)
    for name, make in clean_cases(family, seed):
        if choice.wants(f"{name}/{family}/{seed}"):
            yield make()
    for name, repair in repair_cases(family, seed):
        if choice.wants(name):
            wanted = repair()
            if wanted is not None:
                yield wanted
