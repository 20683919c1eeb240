"""Pieces of work for tests of workers: functions of a module, as workers call them."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundoff.errors import BadInput

if TYPE_CHECKING:
    from roundoff.suite.matrix import SuiteUnit


def double(number: int) -> int:
    return 2 * number


def process() -> int:
    return os.getpid()


def leave_once(mark: str) -> str:
    """End the worker the first time, and tell who one is the second."""
    if not Path(mark).exists():
        Path(mark).touch()
        os._exit(9)
    return "second"


def leave() -> None:
    os._exit(9)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def refuse() -> None:
    raise ValueError("no")


def misfit(mark: str | None = None) -> None:
    begun(mark)
    raise BadInput("'x' has 3 axes.", fix="transpose it")


def disturbed(mark: str) -> None:
    begun(mark)
    raise OSError("the network is gone")


def begun(mark: str | None) -> None:
    if mark is not None:
        with Path(mark).open("a") as file:
            file.write(".")


def tiny(unit: "SuiteUnit") -> dict[str, Any]:
    """A unit that takes no time."""
    return {"key": unit.key, "exit_code": 0, "figures": {"verdict": [unit.label, unit.label]}}


def slow(unit: "SuiteUnit") -> dict[str, Any]:
    time.sleep(float(unit.options.get("seconds", 0.05)))
    return tiny(unit)


def deadly(unit: "SuiteUnit") -> dict[str, Any]:
    """The third ends its worker, each time."""
    if unit.label.endswith("3"):
        os._exit(9)
    return tiny(unit)


def noted(unit: "SuiteUnit") -> dict[str, Any]:
    """Leaves a mark each time it is done."""
    folder = Path(str(unit.options["marks"]))
    (folder / f"{unit.key}.{os.getpid()}.{time.time_ns()}").touch()
    time.sleep(float(unit.options.get("seconds", 0.0)))
    return tiny(unit)


def units(count: int, **options: Any) -> "list[SuiteUnit]":
    import hashlib

    from roundoff.suite.matrix import SuiteUnit

    return [
        SuiteUnit(
            f"unit {number}",
            "layers",
            "m",
            "",
            dict(options),
            key=hashlib.sha256(str(number).encode()).hexdigest(),
        )
        for number in range(count)
    ]
