"""The fields of a message, as its class declares them."""

import functools
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

__all__ = ["MessageField", "message_fields"]


@dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a message.

    Attributes:
        name: What it is called.
        kind: What one of its values is: a scalar type, an enumeration, a message, or ``dict`` for free values.
        repeated: Whether it is a list.
        default: What it is when it is not given.
        required: Whether it must be given.
        bare: Whether a list of one may be given as the one.
        only: The members of an enumeration that are allowed; empty for all.
    """

    name: str
    kind: type
    repeated: bool
    default: Any
    required: bool
    bare: bool
    only: tuple[Enum, ...]

    @property
    def is_message(self) -> bool:
        """Whether its values have fields of their own."""
        return is_dataclass(self.kind)

    @property
    def is_scalar(self) -> bool:
        """Whether it has one value, which can be given as a word."""
        return not self.repeated and not self.is_message and self.kind is not dict


def message_fields(message: type) -> Mapping[str, MessageField]:
    """The fields of a message by name, in the order of the class."""
    return _fields(message)


@functools.cache
def _fields(message: Any) -> Mapping[str, MessageField]:
    hints = get_type_hints(message)
    found = {}
    for each in fields(message):
        hint = hints[each.name]
        repeated = get_origin(hint) is tuple
        kind = get_args(hint)[0] if repeated else hint
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        found[each.name] = MessageField(
            each.name,
            dict if get_origin(kind) is dict else kind,
            repeated,
            default,
            bool(each.metadata.get("required")),
            bool(each.metadata.get("bare")),
            tuple(each.metadata.get("only", ())),
        )
    return found
