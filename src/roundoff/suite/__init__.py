"""Many models on many chips: units of work, the store of what is done, and who does it.

``roundoff.suite.run("suite.toml")`` and the others do what ``roundoff suite run suite.toml`` does.
"""

import importlib
from typing import Any

__all__ = ["FUNCTIONS"]

FUNCTIONS = ("gate", "gc", "plan", "report", "run", "status", "submit")
"""The commands, as functions."""


def __getattr__(name: str) -> Any:
    if name not in FUNCTIONS:
        raise AttributeError(f"module 'roundoff.suite' has no attribute {name!r}")
    return getattr(importlib.import_module("roundoff.suite.functions"), name)


def __dir__() -> list[str]:
    return list(FUNCTIONS)
