"""The parameters of a layer by name, with Caffe's defaults where they are not given."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from roundoff.core.text_proto import TextMessage
from roundoff.graph.caffe.tables import MessageSpec, message_spec

__all__ = ["Params"]

_Value = TypeVar("_Value", int, float, str, bool)


@dataclass(frozen=True, slots=True)
class Params:
    """One message of parameters.

    Attributes:
        name: What it is called in the layer.
        message: What was given.
        spec: The fields it may have.
        refuse: Makes the error for a parameter that must be given.
    """

    name: str
    message: TextMessage
    spec: MessageSpec
    refuse: Callable[[str], Exception]

    def has(self, name: str) -> bool:
        """Whether a parameter was given."""
        return name in self.message

    def flag(self, name: str) -> bool:
        """A parameter that is true or false."""
        return bool(self._get(name))

    def integer(self, name: str) -> int:
        """A parameter that is a whole number."""
        return self._checked(name, self._typed(name, int))

    def number(self, name: str) -> float:
        """A parameter that is a number; limits may be infinite, others not."""
        value = self._typed(name, float)
        limits = self.spec.name == "ClipParameter" and not math.isnan(value)
        return value if limits else self._finite(name, value)

    def choice(self, name: str) -> str:
        """A parameter that is one of some names."""
        return self._typed(name, str)

    def integers(self, name: str) -> tuple[int, ...]:
        """A parameter of several whole numbers."""
        values = tuple(int(value) for value in self.message.all(name) if isinstance(value, int))
        return tuple(self._checked(name, value) for value in values)

    def numbers(self, name: str) -> tuple[float, ...]:
        """A parameter of several numbers."""
        values = (float(value) for value in self.message.all(name) if isinstance(value, int | float))
        return tuple(self._finite(name, value) for value in values)

    def data(self, name: str) -> bytes:
        """A parameter of bytes."""
        value = self.message.get(name, b"")
        return value if isinstance(value, bytes) else b""

    def inner(self, name: str) -> "Params":
        """A message inside of this one; an empty one when it was not given."""
        spec = message_spec(self.spec.by_name[name].message)
        return Params(name, self.message.message(name) or TextMessage(), spec, self.refuse)

    def every(self, name: str) -> "list[Params]":
        """All messages of a repeated field."""
        spec = message_spec(self.spec.by_name[name].message)
        return [Params(name, message, spec, self.refuse) for message in self.message.messages(name)]

    def _typed(self, name: str, kind: type[_Value]) -> _Value:
        value = self._get(name)
        if value is None:
            raise self.refuse(f"needs {name!r} in {self.name}")
        return kind(value)

    def _finite(self, name: str, value: float) -> float:
        if not math.isfinite(value):
            raise self.refuse(f"has {name}: {value} in {self.name}, which is not a finite number")
        return value

    def _checked(self, name: str, value: int) -> int:
        if value < 0 and self.spec.by_name[name].kind == "uint":
            raise self.refuse(f"has {name}: {value} in {self.name}, which cannot be below zero")
        return value

    def _get(self, name: str) -> Any:
        return self.message.get(name, self.spec.by_name[name].default)
