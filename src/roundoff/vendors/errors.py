"""Errors of the kinds that vendors' functions raise; the command line knows them as its own."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from roundoff.errors import BadInput, ModelFailed

__all__ = ["CannotRun", "NetworkFailed", "WrongType", "WrongValue", "in_vendors_terms"]

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class WrongValue(BadInput, ValueError):
    """An argument has a value that means nothing."""


class WrongType(BadInput, TypeError):
    """An argument is of a kind that cannot be used."""


class CannotRun(BadInput, RuntimeError):
    """What was asked for cannot be done in this state."""


class NetworkFailed(ModelFailed, RuntimeError):
    """A model could not be run."""


def in_vendors_terms(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Let a function raise all its errors as the kinds that scripts written for the vendor's expect."""

    @functools.wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError, RuntimeError):
            raise
        except BadInput as error:
            raise WrongValue(error.what, fix=error.fix.removesuffix(" with -o")) from error
        except ModelFailed as error:
            raise NetworkFailed(error.what, fix=error.fix) from error

    return call
