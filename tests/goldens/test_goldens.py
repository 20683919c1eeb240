"""Every command gives the numbers it gave: exit code, texts with their digits, documents, tables, models.

After a wanted change look at ``python -m tests.goldens --diff``, then ``python -m tests.goldens --update``.
"""

import json
from pathlib import Path

import pytest
from rich.cells import cell_len

from roundoff.cli import COMMANDS
from tests.goldens.running import VIEWS, Case, Stage, cases
from tests.goldens.values import differences, reduced

CASES = cases()
DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("goldens"))


@pytest.mark.parametrize(
    "case", [pytest.param(each, id=name, marks=[pytest.mark.slow] * each.slow) for name, each in CASES.items()]
)
def test_a_command_gives_what_it_gave(case: Case, stage: Stage) -> None:
    if case.missing:
        pytest.skip(f"no {case.missing} in a folder 'shared' beside this checkout")
    kept = json.loads(case.path.read_text(encoding="utf-8"))
    moved = list(differences(kept, stage.observe(case)))
    assert not moved, f"{len(moved)} values moved; python -m tests.goldens --diff {case.name} shows all"


def test_every_golden_is_of_a_case_and_small() -> None:
    assert {path.stem for path in DATA.iterdir()} == CASES.keys()
    sizes = [path.stat().st_size for path in DATA.iterdir()]
    assert max(sizes) < 500_000
    assert sum(sizes) < 3_000_000


def test_every_command_is_kept() -> None:
    # Two wait for somebody who asks; what self-check says of this host holds on no other, and what completion
    # prints is the table of options, which other tests read.
    apart = {"serve", "mcp", "self-check", "completion"}
    assert set(COMMANDS) - {each.command.split()[0] for each in CASES.values()} == apart


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_printed_fits_the_terminal(case: Case) -> None:
    kept = json.loads(case.path.read_text(encoding="utf-8"))
    wide = [line for view, text in kept["text"].items() for line in text["out"] if cell_len(line) > VIEWS[view][1]]
    assert bool(wide) == case.wide


# The comparison itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        ({"a": 1.0}, {"a": 1.000002}),
        ({"a": 1}, {"a": 2}),
        ({"a": "inf"}, {"a": 1.0}),
        ({"a": True}, {"a": 1}),
        ({"a": None}, {"a": 0.0}),
        ({"a": 1}, {}),
        ({}, {"a": 1}),
        ([1, 2], [1, 2, 3]),
        ({"text": {"x": "keeps 4.3 dB"}}, {"text": {"x": "keeps 4.5 dB"}}),
        ({"text": {"x": "keeps 4.3 dB"}}, {"text": {"x": "keeps 4.3 db"}}),
        ({"text": {"x": "7 of 9 nodes"}}, {"text": {"x": "8 of 9 nodes"}}),
        ({"text": {"x": "a,0.9998454377828728"}}, {"text": {"x": "a,0.9998554377828728"}}),
        (["a,0.85,x"], ["a,0.86,x"]),
        (["a,0.8512345,x"], ["a,0.8512355,x"]),
    ],
)
def test_what_moved_is_seen(kept: object, found: object) -> None:
    assert list(differences(kept, found))


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        ({"a": 1.0}, {"a": 1.0000005}),
        ({"a": 1e-12}, {"a": 3e-12}),
        ({"text": {"x": "keeps 4.3 dB"}}, {"text": {"x": "keeps 4.4 dB"}}),
        ({"text": {"x": "mse 1.2e-05"}}, {"text": {"x": "mse 1.3e-05"}}),
        ({"text": {"x": "a,0.9998454377828728"}}, {"text": {"x": "a,0.999845437782873"}}),
        (["a,0.85123456789,x"], ["a,0.85123456788,x"]),
    ],
)
def test_what_a_machine_may_change_is_not(kept: object, found: object) -> None:
    assert list(differences(kept, found)) == []


def test_a_digest_sees_values_and_their_order() -> None:
    row = [float(value % 7) for value in range(100)]
    for other in ([*row[:-1], 9.0], row[::-1], row[:-1]):
        assert list(differences(reduced(row), reduced(other)))
    assert reduced(row)["shape"] == [100]


def test_clocks_are_no_part_of_a_document() -> None:
    assert reduced({"a": 1, "seconds": 3.0, "environment": {"host": "x"}}) == {"a": 1}
