"""JSON as AMCT writes it, and read so that nothing is overlooked: no key may stand twice in one object."""

import json
from pathlib import Path
from typing import Any

from roundoff.core.files import read_small, write_text
from roundoff.errors import BadInput
from roundoff.vendors.errors import WrongValue

__all__ = ["dump", "parse_json", "read_json", "write_json"]


def dump(document: Any) -> str:
    """JSON with four blanks for each level and none behind colons; names keep their letters."""
    return json.dumps(document, indent=4, separators=(",", ":"), ensure_ascii=False)


def write_json(path: Path, document: Any) -> None:
    """Write JSON whole or not at all."""
    write_text(path, dump(document))


def read_json(path: Path, *, what: str) -> Any:
    """The content of a JSON file.

    Raises:
        BadInput: The file cannot be read, or is not JSON.
        WrongValue: A key stands twice in one object.
    """
    return parse_json(read_small(path, what=what).decode("utf-8-sig", errors="replace"), name=str(path))


def parse_json(text: str, *, name: str) -> Any:
    """The content of a JSON text.

    Raises:
        BadInput: It is not JSON.
        WrongValue: A key stands twice in one object.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise WrongValue(f"{name}: the key {key!r} stands twice in one object.", fix="remove one of them")
            found[key] = value
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise BadInput(f"{name} is not JSON: {error.msg} ({where}).", fix="correct that line") from error
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(
            f"{name} holds a number of too many digits.", fix="check that it is the right file"
        ) from error
    except RecursionError as error:
        raise BadInput(f"{name} is nested too deep.", fix="check that it is the right file") from error
