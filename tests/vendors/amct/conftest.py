"""A model that has been calibrated."""

from pathlib import Path

import pytest

from tests.vendors.amct.support import Work, batches


@pytest.fixture
def calibrated(tmp_path: Path) -> Work:
    work = Work(tmp_path)
    work.quantize()
    work.run(batches(2))
    return work
