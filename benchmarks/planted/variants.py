"""Other ways in which the same dump can come: fewer tensors, channels last, alone, under other names."""

from dataclasses import replace

import numpy as np

from benchmarks.planted.case import CLEAN, Dumps, PlantedCase, Truth
from benchmarks.planted.families import FAMILIES
from benchmarks.planted.naming import STYLES, named
from benchmarks.planted.subject import run, sqnr
from roundoff.core.tensors import Array
from roundoff.graph.interface import outputs

WAYS = ("whole", "some tensors", "without the quantized model", "channels last", "outputs only")
"""How a dump can come."""
# An output of a device with so few decibels is broken.
_BROKEN_DB = 20.0

# How many of the tensors that nobody needs are left out.
_LEFT_OUT = 0.4


def _dumps(case: PlantedCase) -> Dumps:
    assert case.dumps is not None
    return case.dumps


def some_tensors(case: PlantedCase, rng: np.random.Generator) -> PlantedCase:
    """Only some tensors were dumped; those of the culprits and the outputs are among them."""
    dumps = _dumps(case)
    needed = {name for each in case.truths for name in each.nodes} | set(outputs(case.model)) | set(case.samples)
    kept = {name for name in dumps.samples[0] if name in needed or rng.random() > _LEFT_OUT}
    some = tuple({name: array for name, array in each.items() if name in kept} for each in dumps.samples)
    return replace(case, dumps=replace(dumps, samples=some, way="some tensors"))


def channels_last(case: PlantedCase) -> PlantedCase:
    """All pictures lie channels last in the dump, as on most chips."""

    def moved(array: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if array.ndim == 4 else array

    dumps = _dumps(case)
    samples = tuple({name: moved(array) for name, array in each.items()} for each in dumps.samples)
    return replace(case, dumps=replace(dumps, samples=samples, way="channels last"))


def without_quantized(case: PlantedCase) -> PlantedCase:
    """The user has no quantized model."""
    return replace(case, dumps=replace(_dumps(case), with_quantized=False, way="without the quantized model"))


def only_outputs(case: PlantedCase) -> PlantedCase:
    """Nothing but the outputs was dumped: where they go wrong cannot be told, that they do can."""
    dumps, names = _dumps(case), outputs(case.model)
    kept = tuple({name: tensors[name] for name in names} for tensors in dumps.samples)
    nodes = frozenset(name for each in case.truths for name in each.nodes)
    causes = tuple(cause for each in case.truths for cause in each.causes)
    told = CLEAN if case.is_clean else Truth("somewhere", nodes, causes)
    return replace(case, truths=(told,), dumps=replace(dumps, samples=kept, way="outputs only"))


def output_db(case: PlantedCase) -> float:
    """Signal to noise of the device at the output that is worst off, against the float network."""
    names, dumps = outputs(case.model), _dumps(case)
    exact = run(case.model, case.samples, names)
    found = {name: np.concatenate([each[name] for each in dumps.samples]) for name in names}
    if dumps.way == "channels last":
        found = {name: np.moveaxis(x, -1, 1) if x.ndim == 4 else x for name, x in found.items()}
    return min(sqnr(exact[name], found[name]) for name in names)


def styled(case: PlantedCase, rng: np.random.Generator, number: int) -> PlantedCase:
    """The case with the names of a device; which style depends on the number, the network and the seed."""
    turn = number + 3 * list(FAMILIES).index(case.family) + case.seed
    return named(case, list(STYLES)[turn % len(STYLES)], rng)


# Faults so gross that they show whatever else is known of the device.
_GROSS = (
    "kernel-",
    "swapped-",
    "stale-",
    "layout-",
    "requantized-",
    "wrong-",
    "preprocessing-",
    "fused-",
    "operation-",
)


def varied(case: PlantedCase, rng: np.random.Generator, number: int) -> PlantedCase:
    """The case as it is, or in another way and under other names; the next seed has others.

    Args:
        case: The case.
        rng: Source of chance.
        number: Of the fault.
    """
    if case.dumps is None:
        return case
    if case.fault.startswith(_GROSS):
        match WAYS[(case.seed + number) % len(WAYS)]:
            case "some tensors":
                case = some_tensors(case, rng)
            case "without the quantized model":
                case = without_quantized(case)
            case "channels last":
                case = channels_last(case)
            case "outputs only" if output_db(case) <= _BROKEN_DB:
                case = only_outputs(case)
    return styled(case, rng, number)
