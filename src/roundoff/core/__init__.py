"""The nouns every other layer speaks in; numpy and the standard library only.

Packages that share their name with a public function can be called as that function: ``roundoff.quantize`` is a
package and a command. A module attribute can only be one of them, and which one it is would depend on what was
imported before; so the package itself is callable.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

__all__ = ["make_callable"]

_API = "roundoff.api"


class _CallableModule(ModuleType):
    """A module that calls the public function of its name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        name = self.__name__.rpartition(".")[2]
        return getattr(importlib.import_module(_API), name)(*args, **options)


def make_callable(module_name: str) -> None:
    """Let a package that is being imported be called as the function of `roundoff.api` that has its name."""
    sys.modules[module_name].__class__ = _CallableModule
