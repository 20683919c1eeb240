"""A folder with a calibrated model and its data."""

from pathlib import Path

import pytest

from tests.vendors.horizon.support import write_case


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Paths of a calibrated model and of its calibration data."""
    return write_case(tmp_path_factory.mktemp("horizon"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files instead of pictures, which take long to draw; how they look is tested elsewhere."""
    for module in ("curves", "distributions"):
        monkeypatch.setattr(f"roundoff.report.plots.{module}.draw", lambda *_, **__: b"\x89PNG")
