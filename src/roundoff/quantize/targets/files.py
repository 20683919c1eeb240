"""Reading target files: by name or path, with what they extend, and all their errors at once."""

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundoff.core.files import read_small
from roundoff.core.target import Target
from roundoff.core.untrusted import read_toml
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english

if TYPE_CHECKING:
    from pydantic import BaseModel

_SUFFIX = ".toml"
_EXTEND = english('begin with extends = "generic-int8", or another target, and say only what differs')
_FIX = english(
    "correct it; 'roundoff explain targets.md' describes every key, 'roundoff targets NAME' shows an example"
)


def target_names() -> tuple[str, ...]:
    """Names of the targets that come with roundoff, sorted."""
    files = resources.files("roundoff.quantize.targets").iterdir()
    return tuple(sorted(file.name.removesuffix(_SUFFIX) for file in files if file.name.endswith(_SUFFIX)))


def load_target(name_or_path: str | Path) -> Target:
    """Read a target.

    Args:
        name_or_path: The name of one that comes with roundoff, or the path of a TOML file.

    Raises:
        BadInput: There is none of that name, or the file cannot be used; all its errors are named at once.
    """
    path = _path(str(name_or_path))
    content, broken = _complete(_parse(path), path, seen=())
    content.setdefault("name", path.stem)
    return _checked(content, path, broken)


def target_text(name_or_path: str | Path) -> str:
    """The file of a target as it is.

    Raises:
        BadInput: There is none of that name.
    """
    return read_small(_path(str(name_or_path)), what=english("The target")).decode("utf-8", errors="replace")


def _path(name: str, folder: Path = Path()) -> Path:
    """The file of a target; `folder` is where a file of that name may lie that was meant instead."""
    if name in target_names():
        return Path(str(resources.files("roundoff.quantize.targets").joinpath(name + _SUFFIX)))
    if _is_path(name) or Path(name).is_file():
        return Path(name)
    beside = name + _SUFFIX
    if name and (folder / beside).is_file():
        raise BadInput(
            english("There is no target {name!r}, but a file {beside}.", name=name, beside=beside),
            fix=english("write {beside} to use it", beside=beside),
        )
    # As people call a chip: AX650 is a word of one name only.
    called = [each for each in target_names() if name.lower() == each or name.lower() in each.split("-")]
    if len(called) == 1:
        return _path(called[0])
    hint = nearest(name, target_names())
    fix = (
        english("{hint} Or give a .toml file", hint=hint)
        if hint.endswith("?")
        else english("{hint}; or give a .toml file", hint=hint)
    )
    raise BadInput(english("There is no target {name!r}.", name=name), fix=fix)


def _is_path(name: str) -> bool:
    return name.lower().endswith(_SUFFIX) or "/" in name or "\\" in name


def _complete(content: dict[str, Any], path: Path, *, seen: tuple[Path, ...]) -> tuple[dict[str, Any], str]:
    """What a file says, on top of what it extends; and why that cannot be had, empty when it can."""
    content = dict(content)
    base = content.pop("extends", None)
    if base is None:
        return content, ""
    if not isinstance(base, str):
        return content, f"extends: should be a name or a path, got {base!r:.60}"
    before = (*seen, path.resolve())
    try:
        # A name is one of ours; a path is seen from the file that names it.
        below = path.parent / base if _is_path(base) else _path(base, path.parent)
        if below.resolve() in before:
            return content, f"extends: {path} extends {base}, which extends it in turn; remove one of the two"
        said, broken = _complete(_parse(below), below, seen=before)
    except BadInput as error:
        return content, f"extends: {error.what.rstrip('.')}; {error.fix}"
    # Its own words replace those of what it extends, in every language.
    own = {"name", *(("description_zh",) if "description" in content else ())}
    return _merged({key: value for key, value in said.items() if key not in own}, content), broken


def _parse(path: Path) -> dict[str, Any]:
    return read_toml(path, what=english("The target file"))


def _merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Tables key by key, everything else replaced; a table, or an entry of one, that is ``false`` is removed."""
    result = dict(base)
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = _merged(result[key], value)
        elif value is False and not isinstance(result.get(key, False), bool):
            del result[key]
        else:
            result[key] = value
    return result


def _checked(content: dict[str, Any], path: Path, broken: str) -> Target:
    """The target a file describes.

    Args:
        content: What the file says, on top of what it extends.
        path: The file.
        broken: Why what it extends is not among it.
    """
    from pydantic import ValidationError

    from roundoff.quantize.targets.schema import TargetFile

    lines, fix = [broken] if broken else [], _FIX
    try:
        target = TargetFile.model_validate(content).target()
        if not broken:
            return target
    except ValidationError as error:
        # What is missing may be in what is extended; without it nobody knows.
        wrong = [item for item in error.errors() if not broken or not _is_missing(item)]
        lines += [line for item in wrong for line in _explain(item, TargetFile)]
        if any(item["type"] == "missing" and len(item["loc"]) == 1 for item in wrong):
            fix = english("{extend}; {fix}", extend=_EXTEND, fix=_FIX)
    count = "an error" if len(lines) == 1 else f"{len(lines)} errors"
    raise BadInput("\n".join([f"The target file {path} has {count}:", *(f"  {line}" for line in lines)]), fix=fix)


def _is_missing(error: Any) -> bool:
    """Whether an error may be one only because what is extended is not there: it may be what ``false`` removes."""
    of_the_whole = error["type"] == "value_error" and not error["loc"]
    return of_the_whole or error["type"] == "missing" or error["input"] is False


def _explain(error: Any, model: "type[BaseModel]") -> list[str]:
    """One error of the schema as lines: where it is, what is wrong, what is allowed."""
    place = ".".join(str(part) for part in error["loc"] if part != "[key]") or "the file"
    if error["type"] == "extra_forbidden":
        return [f"{place}: unknown key; {nearest(str(error['loc'][-1]), _keys(model, error['loc'][:-1]))}"]
    if error["type"] == "missing":
        return [f"{place}: missing"]
    if error["type"] == "value_error":
        text = str(error["msg"]).removeprefix("Value error, ")
        return text.splitlines() if not error["loc"] else [f"{place}: {text}"]
    return [f"{place}: {error['msg']}, got {error['input']!r:.60}"]


def _keys(model: "type[BaseModel]", location: tuple[Any, ...]) -> list[str]:
    """Keys of the table at a place of the file."""
    from roundoff.quantize.targets import schema

    tables: dict[str, type[BaseModel]] = {
        "activations": schema.SpecTable,
        "weights": schema.SpecTable,
        "live_operand": schema.LiveTable,
        "float": schema.FloatTable,
        "arithmetic": schema.ArithmeticTable,
        "calibration": schema.CalibrationTable,
        "cost": schema.CostTable,
    }
    table = tables[location[0]] if location else model
    names = [field.alias or name for name, field in table.model_fields.items()]
    return names if location else [*names, "extends"]
