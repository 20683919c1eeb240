"""A configuration as JSON that the vendor's tool reads: its keys alone, members of enumerations by name."""

import json
from enum import Enum
from typing import Any

from roundoff.vendors.pulsar2.config.fields import message_fields
from roundoff.vendors.pulsar2.config.schema import BuildConfig

__all__ = ["to_document", "to_json"]


def to_json(config: BuildConfig, *, full: bool = False) -> str:
    """A configuration as text; reading it again gives the same.

    Args:
        config: The configuration.
        full: Write defaults too. Without them older versions of the tool, which lack newer keys, can read it.
    """
    return json.dumps(to_document(config, full=full), indent=2, ensure_ascii=False) + "\n"


def to_document(message: Any, *, full: bool = False) -> dict[str, Any]:
    """A message as plain values."""
    written = {}
    for name, field in message_fields(type(message)).items():
        value = getattr(message, name)
        if full or field.required or value != field.default:
            written[name] = _plain(value, full=full)
    return written


def _plain(value: Any, *, full: bool) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, tuple):
        return [_plain(each, full=full) for each in value]
    return to_document(value, full=full) if hasattr(value, "__dataclass_fields__") else value
