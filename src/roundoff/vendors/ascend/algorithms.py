"""The ten built-in algorithms as the vendor prints them, its treatment of zeros, scalars and booleans included.

The arithmetic is the vendor's and stays here: its tables are met to the last digit, with sums of float32 in its
order, which `roundoff.measure` computes otherwise on purpose.
"""

import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, SupportsFloat

import numpy as np

from roundoff.core.tensors import Array
from roundoff.messages.message import english
from roundoff.vendors.ascend.errors import Code, NotCompared, Refused
from roundoff.vendors.ascend.golden_pairs import EPSILON, GoldenPair
from roundoff.vendors.ascend.layouts import Convert
from roundoff.vendors.ascend.rules import Warn

NOT_COMPUTED = "NaN"
"""What the vendor prints where nothing was computed; results that are no numbers are ``nan``."""

SCALAR = "This tensor is scalar."
"""What is said of a tensor with one element, whose cosine means nothing."""

ALL_ZERO = "All the data is zero in"
"""What is said where one side is nothing but zeros, so that there is no cosine."""

_BOOLEAN = ("CosineSimilarity", "RelativeEuclideanDistance")
_TINY = 0.001
"""Means and deviations below this are printed as zero."""

_EMPTY = "zero-size array to reduction operation maximum which has no identity"


@dataclass(frozen=True, slots=True)
class ComparedTensors:
    """Two tensors to compare.

    Attributes:
        pair: Their values.
        scalar: Whether every axis has one element.
        mine: The file under test, for messages.
        golden: The golden file, for messages.
    """

    pair: GoldenPair
    scalar: bool
    mine: str
    golden: str


Algorithm = Callable[[ComparedTensors], tuple[str, str]]
"""Gives the printed value and a message, empty when there is nothing to say."""


def compare_values(
    case: ComparedTensors, algorithms: dict[str, Algorithm], *, warn: Callable[[str], None]
) -> tuple[list[str], list[str]]:
    """Run algorithms on two tensors.

    Args:
        case: The tensors.
        algorithms: By name, in the order of the columns.
        warn: Told of what could not be computed.

    Returns:
        The printed values, and the messages for the column of reasons.
    """
    case.pair.needs = frozenset(part for name in algorithms for part in _NEEDS.get(name, ()))
    both_boolean = case.pair.mine.dtype == np.bool_ == case.pair.golden.dtype
    values: list[str] = []
    messages: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of complex numbers the vendor, too, takes the real part
        for name, algorithm in algorithms.items():
            if both_boolean and name not in _BOOLEAN:
                value, message = NOT_COMPUTED, f"Algorithm {name} does not support Boolean types."
            else:
                value, message = (_of_booleans(case, name) if both_boolean else None) or algorithm(case)
                if value == NOT_COMPUTED and message:
                    warn(message)
            values.append(value)
            if message:
                messages.append(message)
    case.pair.close()
    return values, messages


def failed(name: str, reason: object) -> tuple[str, str]:
    """The result of an algorithm that could not be run."""
    return NOT_COMPUTED, f"Failed to execute 'compare' in '{name}'. {reason}"


def _printed(value: SupportsFloat) -> str:
    return f"{float(value):.6f}"


def _mean(total: np.float32, count: int) -> np.float32:
    with np.errstate(all="ignore"):
        return np.float32(np.float64(total) / np.float64(count))


def _cosine(case: ComparedTensors) -> tuple[str, str]:
    if case.scalar:
        return _printed(1), SCALAR
    mine, golden = (np.sqrt(total) for total in case.pair.lengths)
    return _cosine_of(case, mine, golden) or (case.pair.cosine(lambda value: _printed(min(value, 1.0))), "")


def _cosine_of(case: ComparedTensors, mine: float, golden: float) -> tuple[str, str] | None:
    """What is printed for vectors of these lengths, when one of them has none."""
    if mine <= EPSILON and golden < EPSILON:
        return "1.0", ""
    for length, file in ((mine, case.mine), (golden, case.golden)):
        # The root of a length that is a root already: as the vendor has it, so that only lengths below the
        # square of the smallest step count as none.
        if np.sqrt(length) <= EPSILON:
            return NOT_COMPUTED, f"Cannot compare by Cosine Similarity. {ALL_ZERO} {file}."
    return None


def _max_absolute(case: ComparedTensors) -> tuple[str, str]:
    _ = case.pair.relative_sum
    if not case.pair.count:
        return failed("MaxAbsoluteError", _EMPTY)
    return _printed(case.pair.largest_difference), ""


def _accumulated_relative(case: ComparedTensors) -> tuple[str, str]:
    return _printed(case.pair.relative_sum), ""


def _relative_distance(case: ComparedTensors, *, root: type[np.floating[Any]] = np.float32) -> tuple[str, str]:
    return case.pair.squared_distance(lambda share: _printed(np.sqrt(root(np.float32(share))))), ""


def _relative_distance_8_1(case: ComparedTensors) -> tuple[str, str]:
    """The same with the root of CANN 8.1, which is taken in float64."""
    return _relative_distance(case, root=np.float64)


def _divergence(case: ComparedTensors) -> tuple[str, str]:
    if not case.pair.count:
        return failed("KullbackLeiblerDivergence", _EMPTY)
    text = case.pair.divergence(lambda value: _printed(0.0 if abs(value) < EPSILON else value))
    endless = f"Cannot compare by KL Divergence. The data contains 0 in {case.golden!r}."
    return text, endless if text == "inf" else ""


def _spread(case: ComparedTensors) -> tuple[str, str]:
    def show(mean: float, deviation: float) -> str:
        return "({:.3f};{:.3f})".format(*(0.0 if abs(part) < _TINY else part for part in (mean, deviation)))

    return ",".join(case.pair.spread(place, show) for place in range(2)), ""


def _mean_absolute(case: ComparedTensors) -> tuple[str, str]:
    return case.pair.absolute_difference(lambda total: _printed(_mean(np.float32(total), case.pair.count))), ""


def _root_mean_square(case: ComparedTensors) -> tuple[str, str]:
    return case.pair.squared_difference(
        lambda squares: _printed(np.sqrt(_mean(np.float32(squares), case.pair.count)))
    ), ""


def _max_relative(case: ComparedTensors) -> tuple[str, str]:
    _ = case.pair.relative_sum
    if not case.pair.count:
        return failed("MaxRelativeError", _EMPTY)
    return _printed(case.pair.largest_relative), ""


def _mean_relative(case: ComparedTensors) -> tuple[str, str]:
    return _printed(_mean(case.pair.relative_sum, case.pair.count)), ""


def _of_booleans(case: ComparedTensors, name: str) -> tuple[str, str] | None:
    """What is printed for two boolean tensors, where that differs from numbers."""
    mine, golden = (float(np.count_nonzero(side)) for side in (case.pair.mine, case.pair.golden))
    if name == "CosineSimilarity" and not case.scalar:
        common = float(np.count_nonzero(np.logical_and(case.pair.mine, case.pair.golden)))
        special = _cosine_of(case, mine**0.5, golden**0.5)
        return special or (_printed(min(common / (mine * golden) ** 0.5, 1.0)), "")
    if name == "RelativeEuclideanDistance":
        if not golden:
            return _printed(0.0), ""
        try:
            np.subtract(np.zeros(1, np.bool_), np.zeros(1, np.bool_))
        except TypeError as error:
            return failed(name, error)
    return None


_NEEDS = {
    "CosineSimilarity": ("lengths", "cosine"),
    "MaxAbsoluteError": ("difference",),
    "AccumulatedRelativeError": ("relative",),
    "RelativeEuclideanDistance": ("lengths", "difference"),
    "KullbackLeiblerDivergence": ("density",),
    "StandardDeviation": ("lengths", "spread"),
    "MeanAbsoluteError": ("difference",),
    "RootMeanSquareError": ("difference",),
    "MaxRelativeError": ("relative",),
    "MeanRelativeError": ("relative",),
}
"""What each of them needs of a pair."""

BUILTIN: dict[str, Algorithm] = {
    "CosineSimilarity": _cosine,
    "MaxAbsoluteError": _max_absolute,
    "AccumulatedRelativeError": _accumulated_relative,
    "RelativeEuclideanDistance": _relative_distance,
    "KullbackLeiblerDivergence": _divergence,
    "StandardDeviation": _spread,
    "MeanAbsoluteError": _mean_absolute,
    "RootMeanSquareError": _root_mean_square,
    "MaxRelativeError": _max_relative,
    "MeanRelativeError": _mean_relative,
}
"""By name, in the order of their numbers."""


# Which algorithms run: by number or name, built in or from a folder of scripts, with their options.

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
    if strict:
        known["RelativeEuclideanDistance"] = _relative_distance_8_1
    for name, module in own.items():
        function = _function(module, "compare", arguments=_ARGUMENTS, warn=warn)
        if function is not None:
            known[name] = _called(name, function, parsed.get(name, {}))
    names = [name for name in known if name in BUILTIN or not strict]
    if chosen.strip().lower() != "all":
        names = _named(chosen, known, warn=warn)
    if not names:
        supported = english("Just supports {known}. Please check the select algorithm name.", known=list(known))
        what = english(
            "The algorithm in '{chosen}' does not supported. {supported}", chosen=chosen, supported=supported
        )
        raise Refused(what, code=Code.ALGORITHM, fix=english("choose numbers from 0 to 9, or names, with commas"))
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
            what = english("The algorithm argument ({part!r}) is invalid.", part=part)
            raise Refused(
                what, code=Code.PARAMETER, fix=english('write -a "NAME:key=value,key=value;NAME:key=value"')
            )
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
            what = english("Failed to execute 'convert' in '{name}'. {error}", name=name, error=error)
            raise NotCompared(what, code=Code.CONVERSION) from error
        if not isinstance(found, np.ndarray):
            what = english("The return value of 'convert' in '{name}' is not numpy.ndarray.", name=name)
            raise NotCompared(what, code=Code.CONVERSION)
        return found

    return convert


def _scripts(folder: Path | None, name: str, pattern: re.Pattern[str], *, warn: Warn) -> dict[str, ModuleType]:
    if folder is None:
        return {}
    if not folder.is_dir():
        what = english("The custom script path {folder} is not a folder.", folder=folder)
        raise Refused(what, code=Code.PATH, fix=english("give a folder that holds {name}/", name=name))
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
        what = english("The script {path} cannot be run: {error}.", path=path, error=error)
        raise Refused(
            what, code=Code.ALGORITHM, fix=english("correct it, or take it out of the folder")
        ) from error
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
