"""Which algorithms run: by number or name, built in or from a folder of scripts, with their options."""

import re
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.vendors.ascend.algorithms import BUILTIN, Algorithm, ComparedTensors, failed
from roundoff.vendors.ascend.errors import Code, NotCompared, Refused
from roundoff.vendors.ascend.fitting import Convert
from roundoff.vendors.ascend.rules import Warn

__all__ = ["FILE_ALGORITHMS", "own_conversions", "parse_options", "select_algorithms"]

FILE_ALGORITHMS = tuple(name for name in BUILTIN if name not in ("KullbackLeiblerDivergence", "StandardDeviation"))
"""What ``file_compare`` computes."""

_ALGORITHM_FILE = re.compile(r"alg_([A-Za-z0-9_]+)\.py")
_CONVERSION_FILE = re.compile(r"(convert_[A-Za-z0-9_]+_to_[A-Za-z0-9_]+)\.py")
_MOST_FILES, _MOST_BYTES = 1000, 2**20
_ARGUMENTS = 3


def select_algorithms(
    chosen: str, *, scripts: Path | None, options: str, warn: Warn, strict: bool = False
) -> dict[str, Algorithm]:
    """The algorithms that were asked for, in that order.

    Args:
        chosen: ``all``, or numbers and names with commas.
        scripts: A folder with ``algorithm/alg_NAME.py`` files.
        options: ``NAME:key=value,key=value;NAME:...``.
        warn: Told of names that mean nothing.
        strict: Let ``all`` leave out scripts, as the vendor does.

    Raises:
        Refused: There is nothing left to run.
    """
    own = _scripts(scripts, "algorithm", _ALGORITHM_FILE, warn=warn)
    parsed = parse_options(options)
    known: dict[str, Algorithm] = dict(BUILTIN)
    for name, module in own.items():
        function = _function(module, "compare", arguments=_ARGUMENTS, warn=warn)
        if function is not None:
            known[name] = _called(name, function, parsed.get(name, {}))
    names = [name for name in known if name in BUILTIN or not strict]
    if chosen.strip().lower() != "all":
        names = _named(chosen, known, warn=warn)
    if not names:
        supported = f"Just supports {list(known)}. Please check the select algorithm name."
        what = f"The algorithm in '{chosen}' does not supported. {supported}"
        raise Refused(what, code=Code.ALGORITHM, fix="choose numbers from 0 to 9, or names, with commas")
    return {name: known[name] for name in names}


def _named(chosen: str, known: dict[str, Algorithm], *, warn: Warn) -> list[str]:
    names: dict[str, None] = {}
    builtin = list(BUILTIN)
    for word in (part.strip() for part in re.split(r"[,\s]", chosen)):
        name = builtin[int(word)] if re.fullmatch(r"[0-9]", word) else word
        if name in known:
            names[name] = None
        elif word:
            warn(
                f"The '{word}' does not supported in builtin or custom. Please check the algorithm name or index."
            )
    return list(names)


def parse_options(text: str) -> dict[str, dict[str, str]]:
    """Read options of algorithms; a number stands for a built-in one."""
    found: dict[str, dict[str, str]] = {}
    for part in filter(None, text.split(";")):
        name, colon, values = part.partition(":")
        name = name.strip()
        pairs = [pair.partition("=") for pair in values.split(",") if pair.strip()]
        whole = all(key.strip() and equals and value.strip() for key, equals, value in pairs)
        if not name or not colon or ":" in values or not pairs or not whole:
            what = f"The algorithm argument ({part!r}) is invalid."
            raise Refused(what, code=Code.PARAMETER, fix='write -a "NAME:key=value,key=value;NAME:key=value"')
        if re.fullmatch(r"[0-9]", name):
            name = list(BUILTIN)[int(name)]
        found.setdefault(name, {}).update({key.strip(): value.strip() for key, _, value in pairs})
    return found


def own_conversions(scripts: Path | None, *, warn: Warn) -> dict[str, Convert]:
    """Conversions of the user's, ``format_convert/convert_SRC_to_DST.py``."""
    found: dict[str, Convert] = {}
    for name, module in _scripts(scripts, "format_convert", _CONVERSION_FILE, warn=warn).items():
        count = _ARGUMENTS + 1 if name.endswith("_to_FRACTAL_Z") else _ARGUMENTS
        function = _function(module, "convert", arguments=count, warn=warn)
        if function is not None:
            found[name] = _converting(name, function, grouped=count > _ARGUMENTS)
    return found


def _converting(name: str, function: Callable[..., Any], *, grouped: bool) -> Convert:
    def convert(source: tuple[int, ...], wanted: tuple[int, ...], values: Array) -> Array:
        groups = (1,) if grouped else ()
        try:
            found = function(list(source), list(wanted), np.array(values), *groups)
        except Exception as error:
            what = f"Failed to execute 'convert' in '{name}'. {error}"
            raise NotCompared(what, code=Code.CONVERSION) from error
        if not isinstance(found, np.ndarray):
            what = f"The return value of 'convert' in '{name}' is not numpy.ndarray."
            raise NotCompared(what, code=Code.CONVERSION)
        return found

    return convert


def _scripts(folder: Path | None, name: str, pattern: re.Pattern[str], *, warn: Warn) -> dict[str, ModuleType]:
    if folder is None:
        return {}
    if not folder.is_dir():
        what = f"The custom script path {folder} is not a folder."
        raise Refused(what, code=Code.PATH, fix=f"give a folder that holds {name}/")
    place = folder / name
    if not place.is_dir():
        warn(f"There is no '{name}' in '{folder}', please check the custom path.")
        return {}
    modules: dict[str, ModuleType] = {}
    for path in sorted(place.iterdir())[:_MOST_FILES]:
        match = pattern.fullmatch(path.name)
        if match and path.is_file() and path.stat().st_size <= _MOST_BYTES:
            modules[match[1]] = _imported(path)
        elif path.is_file() and path.suffix == ".py" and path.name != "__init__.py":
            warn(f"The file '{path.name}' in '{place}' has no name of a script; it is passed over.")
    return modules


def _imported(path: Path) -> ModuleType:
    """Run a script that the user named; it is code of theirs, with all they may do."""
    loader = SourceFileLoader(f"roundoff_script_{path.stem}", str(path))
    module = ModuleType(loader.name)
    module.__file__ = str(path)
    before = list(sys.path)
    sys.path.insert(0, str(path.parent.parent))
    try:
        loader.exec_module(module)
    except Exception as error:
        what = f"The script {path} cannot be run: {error}."
        raise Refused(what, code=Code.ALGORITHM, fix="correct it, or take it out of the folder") from error
    finally:
        sys.path[:] = before
    return module


def _function(module: ModuleType, name: str, *, arguments: int, warn: Warn) -> Callable[..., Any] | None:
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        warn(f"The file '{module.__file__}' has no function '{name}'. Please check the file.")
        return None
    code = getattr(function, "__code__", None)
    if code is not None and code.co_argcount != arguments:
        warn(f"The argument count ({code.co_argcount}) of '{name}' in {module.__file__} is not {arguments}.")
        return None
    return function


def _called(name: str, function: Callable[..., Any], options: dict[str, str]) -> Algorithm:
    def algorithm(case: ComparedTensors) -> tuple[str, str]:
        kind = SimpleNamespace(name="Scalar" if case.scalar else "Tensor", value=0 if case.scalar else 1)
        about = SimpleNamespace(**{
            **options, "my_output_dump_file": case.mine, "ground_truth_dump_file": case.golden, "shape_type": kind,
        })  # fmt: skip
        sides = [
            side if side.dtype == np.bool_ else np.array(side, dtype=np.float32)
            for side in (case.pair.mine, case.pair.golden)
        ]
        try:
            value, message = function(*sides, about)
        except Exception as error:  # noqa: BLE001 - whatever the script does wrong is a reason in its column
            return failed(name, error)
        if not isinstance(value, str) or not isinstance(message, str):
            return failed(name, f"It returned {value!r} and {message!r}, which are not two strings.")
        return value, message

    return algorithm
