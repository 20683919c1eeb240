"""Running ``roundoff ascend`` in tests."""

from collections.abc import Callable

import pytest

from roundoff.cli import main


def ascend(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Gives what runs a sub-command, and tells its exit code and what it printed."""

    def call(*words: object) -> tuple[int, str, str]:
        return (main(["ascend", *map(str, words)]), *capsys.readouterr())

    return call
