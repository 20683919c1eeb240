"""Real networks, where a checkout has them beside it; every other test builds its models itself."""

from pathlib import Path
from typing import Any

import pytest

_SHARED = Path(__file__).resolve().parents[2] / "shared"
_FOLDER = _SHARED / "models"


def real_models() -> list[Any]:
    """Parameters for tests over real ONNX models; one that is visibly skipped when there are none."""
    paths = [pytest.param(path, id=path.stem) for path in sorted(_FOLDER.glob("*/*.onnx"))]
    return paths or [
        pytest.param(None, id="none", marks=pytest.mark.skip(reason="no real models beside this checkout"))
    ]


def real_model(name: str) -> Path:
    """One of the real models; without it the test is visibly skipped."""
    return _present(_FOLDER / name)


def real_data(name: str) -> Path:
    """A file of real data; without it the test is visibly skipped."""
    return _present(_SHARED / "data" / name)


def tool_files(name: str) -> Path:
    """What another vendor's tool wrote; without it the test is visibly skipped."""
    return _present(_SHARED / "vectors" / "tools" / name)


def _present(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"no {path.name} beside this checkout")
    return path
