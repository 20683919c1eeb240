"""What a calibration method is, and the table of all of them."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from roundoff.core.quantizers import QuantSpec
from roundoff.core.table import Table, summary_of
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.quantize.calibration.distribution import Distribution

__all__ = ["Detail", "Method", "Option", "Options", "all_methods", "get_method", "method", "options_of"]

Detail = Literal["range", "histogram"]
Options = Mapping[str, float]
Compute = Callable[[Distribution, QuantSpec, Options], tuple[Array, Array]]


@dataclass(frozen=True, slots=True)
class Option:
    """A number that changes what a method does.

    Attributes:
        default: Its value when nothing is said.
        least: Smallest value allowed.
        most: Largest value allowed.
        meaning: What it says, as the end of a sentence.
    """

    default: float
    least: float
    most: float
    meaning: str


@dataclass(frozen=True, slots=True)
class Method:
    """A way to choose the range of values that codes cover.

    Attributes:
        name: As users write it.
        needs: What must have been observed.
        summary: What it does, in one sentence.
        options: What can be changed; no two methods have options of the same name.
        compute: The range of each row: smallest and largest value to cover. Made into a scale by
            `roundoff.core.quantizers.parameters_from_range`.
    """

    name: str
    needs: Detail
    summary: str
    options: Mapping[str, Option]
    compute: Compute


_METHODS: Table[Method] = Table("calibration method")


def method(name: str, *, needs: Detail = "histogram", **options: Option) -> Callable[[Compute], Compute]:
    """Register a function as a calibration method; its docstring's first line is the summary."""

    def made(compute: Compute) -> Method:
        # One name of an option means one thing, whichever methods are tried together.
        taken = {option for other in _METHODS.values() for option in other.options}
        if taken & set(options):
            raise ValueError(f"an option of the calibration method {name!r} is registered twice")
        return Method(name, needs, summary_of(compute), options, compute)

    return _METHODS.register(name, make=made)


def all_methods() -> Iterator[Method]:
    """Every method, simple ones first."""
    yield from _METHODS.values()


def get_method(name: str) -> Method:
    """Look a method up by name.

    Raises:
        BadInput: There is none.
    """
    return _METHODS.find(name)


def options_of(chosen: Method, given: Options | None) -> dict[str, float]:
    """The options of a method: what was given, and defaults for the rest.

    Args:
        chosen: The method.
        given: Options by name. Those of other methods are allowed, since several methods may be tried together.

    Raises:
        BadInput: No method has an option of that name, or the value is not allowed.
    """
    known = {name: option for each in _METHODS.values() for name, option in each.options.items()}
    for name, value in (given or {}).items():
        if name not in known:
            raise BadInput(f"No calibration method has an option {name!r}.", fix=nearest(name, known))
        option = known[name]
        if math.isnan(value) or not option.least <= value <= option.most:
            what = f"The option {name} is {value:g}; it is {option.meaning}."
            raise BadInput(what, fix=f"give a number from {option.least:g} to {option.most:g}")
    return {name: float((given or {}).get(name, option.default)) for name, option in chosen.options.items()}
