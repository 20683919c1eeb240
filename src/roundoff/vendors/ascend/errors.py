"""Errors with the vendor's exit codes, and why one tensor was not compared."""

import functools
import os
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from roundoff.core.array_files import Unreadable
from roundoff.errors import BadInput
from roundoff.measure.verdicts import load_profile
from roundoff.messages.message import shown


class Code(IntEnum):
    """The vendor's exit codes."""

    FINE = 0
    UNKNOWN = 1
    NO_DUMP = 2
    PATH = 3
    NOT_PARSED = 4
    PARAMETER = 6
    DATA = 11
    INDEX = 12
    JSON = 13
    DUMP = 18
    KIND = 20
    ELEMENT_TYPE = 21
    FORMAT = 22
    SHAPE = 23
    FILE_TYPE = 24
    CONVERSION = 26
    JSON_CONTENT = 29
    UNSUPPORTED = 30
    ALGORITHM = 31
    FRACTAL = 34
    OVERFLOW_KIND = 35
    OVERFLOW_STATUS = 36


class Refused(BadInput):
    """The run cannot go on; it ends with the vendor's exit code.

    Args:
        what: What failed, in the vendor's words where scripts look for them.
        code: The vendor's exit code.
        fix: What to do about it.
        gaps: What goes into the gaps of `what`.
    """

    def __init__(
        self,
        what: str,
        /,
        *,
        code: Code,
        fix: str = "see 'roundoff ascend compare -h' for what goes together",
        **gaps: Any,
    ) -> None:
        super().__init__(what, fix=fix, **gaps)
        self.exit_code = int(code)


class NotCompared(Exception):
    """One operator or tensor was not compared; its row says why.

    Args:
        message: The reason, as it stands in the row.
        code: The vendor's code for it.
    """

    def __init__(self, message: str, /, *, code: Code) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def why_unread(error: Unreadable | OSError) -> str | None:
    """Why a file cannot be read, in a few words."""
    return error.problem if isinstance(error, Unreadable) else error.strerror


# The vendor's limits, from the profile that `roundoff compare --profile ascend` uses, too.

_OTHERS = {
    "KullbackLeiblerDivergence": "kl_divergence",
    "RootMeanSquareError": "rmse",
    "MeanRelativeError": "mean_relative_error",
}


def least_cosine() -> float:
    """The least cosine similarity of a tensor that counts as right."""
    return profile_limits("ascend")[0]


def farthest() -> float:
    """The largest relative Euclidean distance of a tensor that counts as right."""
    return profile_limits("ascend")[1]


def profile_limits(name: str) -> tuple[float, float]:
    """The least cosine similarity and the largest distance of a named profile."""
    return _limits(name)["cosine"], _limits(name)["relative_euclidean"]


def other_limits() -> dict[str, float]:
    """The largest values of further algorithms; they depend on scale, or on few small values, and so only hint."""
    return {algorithm: _limits("ascend")[metric] for algorithm, metric in _OTHERS.items()}


@functools.cache
def _limits(profile: str) -> dict[str, float]:
    return {threshold.metric: threshold.limit for threshold in load_profile(profile).thresholds}


# What a run has to say besides its results, in our way or in the vendor's.

_CONTROL = dict.fromkeys((*range(32), 127), "_")


class Notes:
    """Where warnings go.

    Args:
        say: Prints one line.
        strict: Print as the vendor's tool does, with time and process.
    """

    def __init__(self, say: Callable[[str], None], *, strict: bool = False) -> None:
        self._say = say
        self._strict = strict
        self._said: set[str] = set()

    def warn(self, text: str) -> None:
        """Say that something is odd; the same thing once, unless every line of the vendor is wanted."""
        line = (text if self._strict else shown(text)).translate(_CONTROL)
        if self._strict:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
            self._say(f"{when} ({os.getpid()}) - [WARNING] {line}")
        elif line not in self._said:
            self._said.add(line)
            self._say(f"warning: {line}")
