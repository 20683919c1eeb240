"""A little of ``python -m benchmarks kills``: commands that are killed between two steps on the disk."""

import sys
from pathlib import Path

import pytest
from benchmarks.kills import CAMPAIGNS, campaign


@pytest.mark.skipif(sys.platform != "linux", reason="claims on files and kills are those of Linux")
@pytest.mark.parametrize("command", sorted(CAMPAIGNS))
def test_killed_commands_lose_nothing_and_leave_nothing(command: str, tmp_path: Path) -> None:
    assert list(campaign(command, tmp_path, kills=1, seed=5)) == []
