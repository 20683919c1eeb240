"""The list of planted faults fits the code; planting them takes minutes and is done by ``make mutants``."""

from pathlib import Path

import pytest

from tests.goldens.running import cases
from tests.mutants.__main__ import Mutant, mutants

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_fault_can_be_planted_and_has_tests_that_should_notice(mutant: Mutant) -> None:
    assert mutant.code in mutant.place(SOURCE).read_text(encoding="utf-8")
    assert mutant.fault != mutant.code
    assert mutant.groups()
    assert set(mutant.goldens) <= cases().keys()


def test_code_that_is_not_there_is_told() -> None:
    with pytest.raises(SystemExit, match="in 0 places"):
        Mutant("gone", "loss.py", "no such code", "").place(SOURCE)
