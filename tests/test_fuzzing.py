"""A little of ``python -m benchmarks fuzz`` for every parser, and all inputs that ever failed."""

import re
from pathlib import Path

import pytest
from benchmarks.fuzz import CORPUS, SLOW, Parser, fuzz, parsers, problem

INPUTS = 40
SEED = 1


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Parser, ...]]:
    """The parsers, and the folder that they work in."""
    folder = tmp_path_factory.mktemp("fuzz")
    return folder, parsers(folder)


def test_mutated_documents_are_read_or_refused(known: tuple[Path, tuple[Parser, ...]]) -> None:
    folder, all_of_them = known
    failed = {
        parser.name: [wrong for _, wrong in fuzz(parser, folder, inputs=INPUTS, seed=SEED)]
        for parser in all_of_them
    }
    assert {name: wrong for name, wrong in failed.items() if wrong} == {}


def test_what_failed_once_is_right_now(known: tuple[Path, tuple[Parser, ...]]) -> None:
    folder, all_of_them = known
    by_stem = {re.sub(r"\W+", "_", parser.name).strip("_"): parser for parser in all_of_them}
    kept = sorted(CORPUS.iterdir())
    assert kept
    for path in kept:
        assert problem(by_stem[path.name.rpartition("-")[0]], path.read_bytes(), folder) == "", path.name


def test_documents_are_valid_before_they_are_changed(known: tuple[Path, tuple[Parser, ...]]) -> None:
    folder, all_of_them = known
    for parser in all_of_them:
        if parser.file.endswith(".safetensors") and "header" in parser.name:
            continue  # its seed is the header alone
        for seed in parser.seeds:
            path = folder / parser.file
            path.write_bytes(seed)
            code = parser.read(path)
            assert parser.times != SLOW or code in (0, 1), parser.name
