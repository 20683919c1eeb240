"""The parts of the public API, held to what they are declared to take.

A command reads whatever a user may give it. A part takes what another part gives, as its annotations say; here a
wrong type becomes an error that names the part to call first, where it would else fail somewhere below.
"""

import functools
import inspect
import numbers
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

import roundoff
from roundoff.api.call import public
from roundoff.api.inputs import describe_value
from roundoff.errors import BadInput
from roundoff.messages.message import english

P = ParamSpec("P")
R = TypeVar("R")

_UNIONS = (Union, types.UnionType)
# Numbers out of arrays are numbers.
_NUMBERS: dict[type, Any] = {int: numbers.Integral, float: numbers.Real}


class _Nothing(Protocol):
    """What every protocol has."""


@functools.cache
def part(public_name: str, function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses what it does not take."""
    signature, hints = inspect.signature(function), get_type_hints(function)

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        for name, value in signature.bind(*args, **options).arguments.items():
            if not takes(hints[name], value):
                raise BadInput(
                    english(
                        "roundoff.{function}(): {name} is {said_of}.",
                        function=public_name,
                        name=name,
                        said_of=describe_value(value),
                    ),
                    fix=english("give {kinds}", kinds=_kinds(hints[name])),
                )
        return function(*args, **options)

    # Other processes find it where users do.
    call.__module__, call.__qualname__ = roundoff.__name__, public_name
    return public(call)


def takes(hint: Any, value: Any) -> bool:
    """Whether a value is of an annotated type, elements included. What makes an array of numbers is an array."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if origin in _UNIONS:
        return any(takes(each, value) for each in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is np.ndarray:
        return _is_numbers(value)
    return _is_of(hint, origin or hint, value) and _elements_are(origin, inner, value)


def _is_of(hint: Any, kind: type, value: Any) -> bool:
    if getattr(hint, "_is_protocol", False):
        return all(hasattr(value, member) for member in _members(hint))
    if isinstance(value, str):
        return hint is str
    return isinstance(value, _NUMBERS.get(kind, kind))


def _is_numbers(value: Any) -> bool:
    try:
        return np.asarray(value).dtype.kind in "biufcV"
    except (TypeError, ValueError):
        return False


def _members(protocol: type) -> set[str]:
    declared = {
        name for each in protocol.__mro__ for name in (*vars(each), *vars(each).get("__annotations__", ()))
    }
    return declared - {name for each in _Nothing.__mro__ for name in vars(each)}


def _elements_are(origin: Any, inner: tuple[Any, ...], value: Any) -> bool:
    if not isinstance(origin, type) or not issubclass(origin, Collection):
        return True
    if issubclass(origin, Mapping):
        return all(takes(inner[0], key) and takes(inner[1], item) for key, item in value.items())
    return all(takes(inner[0], item) for item in value)


def _kinds(hint: Any) -> str:
    """What is taken, and which part gives it, for a message."""
    return functools.reduce(lambda one, other: one + " / " + other, dict.fromkeys(_named(hint)))


def _named(hint: Any) -> Iterator[str]:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        for each in inner:
            if each is not str or Path not in inner:
                yield from _named(each)
    elif origin is Literal:
        yield from map(str, inner)
    elif hint is Path:
        yield english("a str or a pathlib.Path")
    elif origin is not None and origin is not np.ndarray and issubclass(origin, Collection):
        yield english("{container} of {kinds}", container=origin.__name__, kinds=_kinds(inner[-1]))
    elif hint is not types.NoneType:
        name = getattr(origin or hint, "__name__", str(hint))
        maker = _maker(hint)
        yield english("{name} (of roundoff.{maker}())", name=name, maker=maker) if maker else name


def _maker(hint: Any) -> str | None:
    """The public function that gives it of something else, or its class."""
    found = None
    if not getattr(hint, "__module__", "").startswith("roundoff."):
        return None
    for name in roundoff.__all__:
        value = getattr(roundoff, name)
        if value is hint and not getattr(hint, "_is_protocol", False):
            found = found or name
        if not hasattr(value, "__wrapped__") or roundoff._HOMES[name].startswith("api."):
            continue
        signature = inspect.signature(value)
        given = signature.return_annotation
        taken = {each.annotation for each in signature.parameters.values()}
        if hint in (given, *get_args(given)) and hint not in taken:
            return name
    return found
