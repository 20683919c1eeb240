"""Many models on many chips: units of work, the store of what is done, and who does it.

``roundoff.suite.run("suite.toml")`` and the others do what ``roundoff suite run suite.toml`` does.
"""

import importlib
from typing import Any

_FUNCTIONS = ("gate", "gc", "plan", "report", "run", "status", "submit")


def __getattr__(name: str) -> Any:
    if name not in _FUNCTIONS:
        raise AttributeError(f"module 'roundoff.suite' has no attribute {name!r}")
    return getattr(importlib.import_module("roundoff.suite.functions"), name)


def __dir__() -> list[str]:
    return list(_FUNCTIONS)
