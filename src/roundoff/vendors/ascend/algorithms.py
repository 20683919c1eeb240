"""The ten built-in algorithms as the vendor prints them, its treatment of zeros, scalars and booleans included.

The arithmetic is the vendor's and stays here: its tables are met to the last digit, with sums of float32 in its
order, which `roundoff.measure` computes otherwise on purpose.
"""

import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, SupportsFloat

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.statistics import release_pages
from roundoff.messages.message import english
from roundoff.vendors.ascend.errors import Code, NotCompared, Refused
from roundoff.vendors.ascend.layouts import Convert
from roundoff.vendors.ascend.rules import Warn

# Sums over two long vectors as numpy's float32 gives them for the whole, without ever holding the whole.
#
# The vendor's figures are float32 sums of entire arrays, and their last printed digits show it. numpy adds such
# arrays pairwise, in a tree of halves; adding block by block along the same tree gives the same bits.

EPSILON = float(np.finfo(np.float64).eps)
"""What the vendor takes for zero."""

_FLOAT32_EPSILON = np.finfo(np.float32).eps
_LEAF = 1 << 16
_RELEASED = 64
"""Blocks after which memory of mapped files is given back: 16 MiB of float32 a side."""

_MOST_KEPT = 1 << 24
"""Elements up to which values of another type are kept as float32 between passes: 64 MiB a side."""

_UNROLLED = 8
"""numpy adds eight partial sums at once, so that its halves begin at multiples of eight."""


def tree_sum(count: int, leaf: Callable[[int, int], Array], *, start: int = 0) -> Array:
    """Add what `leaf` gives for consecutive parts, in the order in which numpy adds a vector of this length.

    Args:
        count: Length of the vector.
        leaf: Partial sums of the elements from the first to before the second number.
        start: Where the vector begins.
    """
    if count <= _LEAF:
        return leaf(start, start + count)
    # numpy's own split (pairwise_sum): halves, the first cut down to a multiple of its unrolled loop. float32
    # addition is not associative, so any other tree would change the last printed digits.
    half = count // 2
    half -= half % _UNROLLED
    left = tree_sum(half, leaf, start=start)
    return left + tree_sum(count - half, leaf, start=start + half)


_EVERYTHING = ("lengths", "cosine", "difference", "relative", "density", "spread")


class GoldenPair:
    """Two vectors of equal length and what the vendor's formulas need of them; each pass runs when first needed.

    Args:
        mine: The values under test, flat.
        golden: The values they should have, flat.

    Attributes:
        needs: What is computed of them; all, unless fewer algorithms are asked for.
    """

    def __init__(self, mine: Array, golden: Array) -> None:
        self.mine = mine
        self.golden = golden
        self.count = mine.size
        self.largest_difference: np.floating[Any] = np.float32(-np.inf)
        self.largest_relative: np.floating[Any] = np.float32(-np.inf)
        self.totals = [0.0, 0.0]
        self._low, self._high = [np.float32(np.inf)] * 2, [np.float32(-np.inf)] * 2
        self._squares = [0.0, 0.0]
        self._lows: dict[tuple[int, int], float] = {}
        self._blocks = 0
        self.needs = frozenset(_EVERYTHING)

    @cached_property
    def _sides(self) -> tuple[Array, Array]:
        """Both sides, as float32 where that takes little memory."""
        return _narrowed(self.mine), _narrowed(self.golden)

    @cached_property
    def _scratch(self) -> tuple[list[Array], Array]:
        size = min(self.count, _LEAF)
        return [np.empty(size, np.float32) for _ in range(4)], np.empty(size, np.float64)

    def _block(self, start: int, stop: int) -> tuple[Array, Array, Array, Array]:
        """Both sides of a block as float32, not to be changed, and two arrays of its length to work in."""
        self._blocks += 1
        if self._blocks % _RELEASED == 0:
            self.release()
        spare = [part[: stop - start] for part in self._scratch[0]]
        sides = []
        for place, whole in enumerate(self._sides):
            part = whole[start:stop]
            if part.dtype != np.float32:
                np.copyto(spare[place], part, casting="unsafe")
                part = spare[place]
            sides.append(part)
        return sides[0], sides[1], spare[2], spare[3]

    @cached_property
    def sums(self) -> Array:
        """Sums of mine², golden², |difference|, difference² and relative error; extremes are kept beside."""
        with np.errstate(all="ignore"):
            return tree_sum(self.count, self._first)

    def _first(self, start: int, stop: int) -> Array:
        mine, golden, work, other = self._block(start, stop)
        found = np.zeros(5, np.float32)
        if start == stop:
            return found
        for place, side in enumerate((mine, golden)):
            if "lengths" in self.needs:
                found[place] = np.multiply(side, side, out=work).sum()
            if "density" in self.needs:
                low = side.min()
                self._lows[start, place] = float(low)
                self._low[place] = np.minimum(self._low[place], low)
                self._high[place] = np.maximum(self._high[place], side.max())
            if "spread" in self.needs:
                self.totals[place] += float(side.sum(dtype=np.float64))
        if "difference" in self.needs:
            np.subtract(mine, golden, out=work)
            np.abs(work, out=work)
            found[2] = work.sum()
            self.largest_difference = np.maximum(self.largest_difference, work.max())
            found[3] = np.multiply(work, work, out=work).sum()
        if "relative" in self.needs:
            found[4] = self._relative(mine, golden, work, other)
        return found

    def _relative(self, mine: Array, golden: Array, work: Array, other: Array) -> np.floating[Any]:
        """The sum of relative errors of a block; the largest is kept beside."""
        # |mine / golden - 1|, not |mine - golden| / |golden|: the same in theory, another rounding in float32.
        np.divide(mine, golden, out=work)
        np.subtract(work, 1, out=work)
        np.abs(work, out=work)
        compared = np.abs(golden, out=other) > EPSILON
        if not compared.all():
            np.copyto(work, 0, where=~compared)
        self.largest_relative = np.maximum(self.largest_relative, work.max())
        total: np.floating[Any] = work.sum()
        return total

    @cached_property
    def _second(self) -> Array:
        """Sum of products of both sides at length one, sums of both as densities; squares are kept beside."""
        with np.errstate(all="ignore"):
            lengths = [np.sqrt(total) for total in self.sums[:2]]
            means = [total / max(self.count, 1) for total in self.totals]

            def leaf(start: int, stop: int) -> Array:
                mine, golden, work, other = self._block(start, stop)
                # Each side is divided by its length before the product: the vendor's order, which keeps large
                # values from overflowing float32 and rounds otherwise than one division at the end.
                found = np.zeros(3, np.float32)
                if "cosine" in self.needs:
                    np.divide(mine, lengths[0], out=work)
                    np.divide(golden, lengths[1], out=other)
                    found[0] = np.multiply(work, other, out=work).sum()
                wide = self._scratch[1][: stop - start]
                for place, side in enumerate((mine, golden)):
                    if "density" in self.needs:
                        found[place + 1] = self._density(side, place, start=start, out=work).sum()
                    if "spread" in self.needs:
                        np.subtract(side, means[place], out=wide, dtype=np.float64)
                        self._squares[place] += float(wide @ wide)
                return found

            return tree_sum(self.count, leaf)

    def _density(self, side: Array, place: int, *, start: int, out: Array) -> Array:
        """One side moved and stretched to reach from 0 to 1, and then kept above the smallest step of float32."""
        low = self._low[place]
        stretch = self._high[place] - low
        if stretch == 0:
            np.copyto(out, side)
        else:
            np.subtract(side, low, out=out)
            np.divide(out, stretch, out=out)
        # Most blocks hold nothing as small as that; the smallest of each is known from the first pass.
        smallest = np.float32(self._lows.get((start, place), 0.0))
        if not (smallest if stretch == 0 else (smallest - low) / stretch) >= _FLOAT32_EPSILON:
            np.maximum(out, _FLOAT32_EPSILON, out=out)
        return out

    @property
    def cosine(self) -> np.float32:
        """Sum of the products of both sides, each divided by its length."""
        return np.float32(self._second[0])

    @cached_property
    def divergence(self) -> np.float32:
        """Kullback-Leibler divergence of both sides taken as densities."""
        _, *whole = self._second

        def leaf(start: int, stop: int) -> Array:
            mine, golden, work, other = self._block(start, stop)
            # sum(p * log(p / q)), p and q being values stretched to 0..1 over their sum: no histogram is made.
            np.divide(self._density(mine, 0, start=start, out=work), whole[0], out=work)
            np.divide(self._density(golden, 1, start=start, out=other), whole[1], out=other)
            np.divide(work, other, out=other)
            np.log(other, out=other)
            total: Array = np.multiply(work, other, out=work).sum(keepdims=True)
            return total

        with np.errstate(all="ignore"):
            return np.float32(tree_sum(self.count, leaf)[0])

    def spread(self, place: int) -> tuple[float, float]:
        """Mean and standard deviation of one side, in float64: of mine (0) or of golden (1)."""
        if self.count == 0:
            return float("nan"), float("nan")
        _ = self._second
        with np.errstate(all="ignore"):
            return self.totals[place] / self.count, float(np.sqrt(self._squares[place] / self.count))

    def release(self) -> None:
        """Give back the memory of values that are mapped from files."""
        release_pages(self.mine)
        release_pages(self.golden)


def _narrowed(side: Array) -> Array:
    if side.dtype == np.float32 or side.size > _MOST_KEPT:
        return side
    with np.errstate(all="ignore"):
        narrow: Array = side.astype(np.float32)
    return narrow


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
    case.pair.release()
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
    mine, golden = (np.sqrt(total) for total in case.pair.sums[:2])
    return _cosine_of(case, mine, golden) or (_printed(min(float(case.pair.cosine), 1.0)), "")


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
    _ = case.pair.sums
    if not case.pair.count:
        return failed("MaxAbsoluteError", _EMPTY)
    return _printed(case.pair.largest_difference), ""


def _accumulated_relative(case: ComparedTensors) -> tuple[str, str]:
    return _printed(case.pair.sums[4]), ""


def _relative_distance(case: ComparedTensors) -> tuple[str, str]:
    golden, differences = case.pair.sums[1], case.pair.sums[3]
    with np.errstate(all="ignore"):
        share = np.float32(0) if np.sqrt(golden) <= EPSILON else differences / golden
        return _printed(np.sqrt(share)), ""


def _relative_distance_8_1(case: ComparedTensors) -> tuple[str, str]:
    """The same with the root of CANN 8.1, which is taken in float64."""
    golden, differences = case.pair.sums[1], case.pair.sums[3]
    with np.errstate(all="ignore"):
        share = np.float32(0) if np.sqrt(golden) <= EPSILON else differences / golden
        return _printed(np.sqrt(np.float64(share))), ""


def _divergence(case: ComparedTensors) -> tuple[str, str]:
    if not case.pair.count:
        return failed("KullbackLeiblerDivergence", _EMPTY)
    value = case.pair.divergence
    message = (
        f"Cannot compare by KL Divergence. The data contains 0 in {case.golden!r}." if value == np.inf else ""
    )
    return _printed(0.0 if abs(value) < EPSILON else value), message


def _spread(case: ComparedTensors) -> tuple[str, str]:
    sides = (case.pair.spread(place) for place in range(2))
    texts = ("({:.3f};{:.3f})".format(*(0.0 if abs(part) < _TINY else part for part in side)) for side in sides)
    return ",".join(texts), ""


def _mean_absolute(case: ComparedTensors) -> tuple[str, str]:
    return _printed(_mean(case.pair.sums[2], case.pair.count)), ""


def _root_mean_square(case: ComparedTensors) -> tuple[str, str]:
    return _printed(np.sqrt(_mean(case.pair.sums[3], case.pair.count))), ""


def _max_relative(case: ComparedTensors) -> tuple[str, str]:
    _ = case.pair.sums
    if not case.pair.count:
        return failed("MaxRelativeError", _EMPTY)
    return _printed(case.pair.largest_relative), ""


def _mean_relative(case: ComparedTensors) -> tuple[str, str]:
    return _printed(_mean(case.pair.sums[4], case.pair.count)), ""


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
    "StandardDeviation": ("spread",),
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
