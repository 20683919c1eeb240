"""Real networks, where a checkout has them beside it; every other test builds its models itself."""

from pathlib import Path
from typing import Any

import pytest

__all__ = ["real_models"]

_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "models"


def real_models() -> list[Any]:
    """Parameters for tests over real ONNX models; one that is visibly skipped when there are none."""
    paths = [pytest.param(path, id=path.stem) for path in sorted(_FOLDER.glob("*/*.onnx"))]
    return paths or [
        pytest.param(None, id="none", marks=pytest.mark.skip(reason="no real models beside this checkout"))
    ]
