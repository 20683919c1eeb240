"""A journal remembers one problem, whole or not at all."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from roundoff.errors import BadInput
from roundoff.search.store import TrialJournal, problem_differences

PROBLEM = {"the model": "a", "--data": "b"}


def test_what_was_measured_is_there_again(tmp_path: Path) -> None:
    journal = TrialJournal(tmp_path / "j", PROBLEM)
    assert [journal.recipe(key, "{}") for key in "abca"] == [1, 2, 3, 1]
    journal.add_chunk("a", 0, np.array([1.0, np.inf]), seconds=1.0)
    journal.add_chunk("a", 2, np.array([0.5]), seconds=2.0)
    journal.add_fact("made a", {"x": [1]})
    journal.close()
    again = TrialJournal(tmp_path / "j", dict(reversed(PROBLEM.items())))
    values, seconds = again.chunks("a")
    assert (values.tolist(), seconds) == ([1.0, np.inf, 0.5], 3.0)
    assert again.chunks("b")[0].size == 0
    assert again.fact("made a") == {"x": [1]}
    assert again.fact("made b") is None
    assert again.facts("made ") == [{"x": [1]}]
    assert again.measured() == [3]
    again.close()


def test_a_second_measurement_of_the_same_changes_nothing(tmp_path: Path) -> None:
    journal = TrialJournal(None, {})
    journal.add_chunk("a", 0, np.array(1.0), seconds=1.0)
    journal.add_chunk("a", 0, np.array(2.0), seconds=1.0)
    journal.add_chunk("a", 5, np.array(3.0), seconds=1.0)
    assert journal.chunks("a")[0].tolist() == [1.0]


def test_another_problem_is_refused_by_name(tmp_path: Path) -> None:
    TrialJournal(tmp_path / "j", PROBLEM).close()
    with pytest.raises(BadInput, match=r"is of another search: --data and --labels differ\."):
        TrialJournal(tmp_path / "j", {"the model": "a", "--data": "c", "--labels": "d"})
    assert problem_differences(PROBLEM, PROBLEM) == ""
    assert problem_differences({"x": "1"}, {}) == "x differs"


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b"not a data base at all, but long enough to look like one" * 100)
    with pytest.raises(BadInput, match="is not a journal of a search"):
        TrialJournal(tmp_path / "j", PROBLEM)
    base = sqlite3.connect(tmp_path / "other")
    base.execute("create table about (key text primary key, value text)")
    base.commit()
    base.close()
    with pytest.raises(BadInput, match="another version"):
        TrialJournal(tmp_path / "other", PROBLEM)


def test_two_searches_do_not_share_a_journal(tmp_path: Path) -> None:
    journal = TrialJournal(tmp_path / "j", PROBLEM)
    journal.add_fact("a", 1)
    with pytest.raises(BadInput, match="in use by another search"):
        TrialJournal(tmp_path / "j", PROBLEM)
    journal.close()
