"""Run documents as JSON, and back."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.core.document import SCHEMA, RunDocument, load_section_types
from roundoff.core.files import reading, regular_file
from roundoff.core.names import shown
from roundoff.errors import BadInput

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = ["DOCUMENT_NAME", "RECORD_NAME", "json_text", "load_document", "to_json"]

DOCUMENT_NAME = "run.json"
RECORD_NAME = "command.json"
"""The document of a run whose folder is known by another file: what was asked, on what, and where."""

_OURS = "give a folder that roundoff wrote"


def to_json(document: RunDocument) -> str:
    """The document as JSON text; infinities and NaN are written as strings, so that none is lost."""
    from pydantic import RootModel

    load_section_types()
    content = RootModel[RunDocument](document).model_dump()
    # A document has one result; those of other kinds of runs are not mentioned.
    kept = {key: value for key, value in content.items() if value is not None}
    # pydantic would write inf as null; model_dump keeps the float.
    return json_text(kept)


def json_text(content: object) -> str:
    """Dictionaries, lists, texts and numbers as JSON; infinities and NaN are written as strings."""
    # Should a float that JSON lacks be left, it refuses it loudly.
    return json.dumps(_plain(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def load_document(path: Path | str) -> RunDocument:
    """Read a run directory or its run.json."""
    from pydantic import TypeAdapter, ValidationError

    load_section_types()
    file = Path(path) / DOCUMENT_NAME if Path(path).is_dir() else Path(path)
    regular_file(file, what="The run document")
    with reading(file, what="The run document"):
        data = file.read_bytes()
    try:
        content = json.loads(data.decode("utf-8"))
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema != SCHEMA:
            what = f"{file} has schema {schema!r}; this version reads {SCHEMA}."
            raise BadInput(what, fix="run the command again with this version of roundoff")
        return TypeAdapter(RunDocument).validate_python(content)
    except (UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{file} is not a run document: it is no JSON.", fix=_OURS) from error
    except ValidationError as error:
        raise BadInput(f"{file} is not a run document: {_first(error.errors())}.", fix=_OURS) from error
    except ValueError as error:
        raise BadInput(f"{file} is not a run document: {error}.", fix=_OURS) from error


def _first(wrong: "Sequence[ErrorDetails]") -> str:
    """The first thing that is wrong in a document, where, and how much else is."""
    place = ".".join(map(str, wrong[0]["loc"])) or "the document"
    more = f", and {len(wrong) - 1} more like this" if len(wrong) > 1 else ""
    return f"{place}: {wrong[0]['msg']}{more}"


def _plain(value: object) -> object:
    """The same content in JSON's types, with floats JSON lacks as the strings Python reads back."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124
        return str(value)
    return value
