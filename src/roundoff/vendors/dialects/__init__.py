"""What a quantization decided, in the words of other tools: the settings file each of them reads."""

from collections.abc import Sequence

from roundoff.core.table import Table
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.vendors.dialects import chips, toolkits
from roundoff.vendors.dialects.settings import Decisions, Dialect, Made, NodeDecision, Written, decisions_of

__all__ = [
    "DIALECTS",
    "Decisions",
    "Dialect",
    "Made",
    "NodeDecision",
    "Written",
    "decisions_of",
    "find_dialect",
    "find_dialects",
]

DIALECTS: Table[Dialect] = Table(
    "dialect",
    (
        (each.name, each)
        for each in (
            toolkits.ROUNDOFF,
            toolkits.ONNXRUNTIME,
            chips.PULSAR2,
            chips.HORIZON,
            chips.AMCT,
            toolkits.RKNN,
            toolkits.TPU_MLIR,
            toolkits.NNCF,
            chips.AIMET,
        )
    ),
)
"""All of them by name."""


def find_dialect(name: str) -> Dialect:
    """The dialect of a name.

    Raises:
        BadInput: There is none.
    """
    return DIALECTS.find(name)


def find_dialects(text: str) -> Sequence[Dialect]:
    """The dialects of a list of names with commas between them; ``all`` names all.

    Raises:
        BadInput: One of them is unknown, or none is named.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise BadInput(
            english("No dialect is named."),
            fix=english("name one or more of {dialects}, or all", dialects=", ".join(DIALECTS)),
        )
    if names == ["all"]:
        return tuple(DIALECTS.values())
    return tuple(find_dialect(name) for name in dict.fromkeys(names))
