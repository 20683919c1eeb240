"""A little of ``python -m benchmarks fuzz`` for every parser, all that ever failed, and no parser forgotten."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from benchmarks.fuzz.campaign import CORPUS, fuzz, home, kept, problem, stem
from benchmarks.fuzz.parsers import SLOW, Parser, parsers

import roundoff

INPUTS = 40
SEED = 1
SOURCE = Path(roundoff.__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the parsers work."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def known(folder: Path) -> tuple[Parser, ...]:
    """The parsers."""
    return parsers(folder)


def test_mutated_documents_are_read_or_refused(folder: Path, known: tuple[Parser, ...]) -> None:
    failed = {each.name: [wrong for _, wrong in fuzz(each, folder, count=INPUTS, seed=(SEED,))] for each in known}
    assert {name: wrong for name, wrong in failed.items() if wrong} == {}


def test_what_failed_once_is_right_now(folder: Path, known: tuple[Parser, ...]) -> None:
    by_stem = {stem(parser): parser for parser in known}
    assert len(by_stem) == len(known)
    files = sorted(CORPUS.iterdir())
    assert files
    for path in files:
        parser, given = kept(path, by_stem)
        assert problem(parser, given, folder) == "", path.name


# What reads a file, or the bytes or the text of one.
READERS = {
    *("read_small", "read_json", "read_toml", "parse_json", "parse_toml", "parse_json_sequence", "parse_csv"),
    *("numbered_rows", "csv_records", "yaml_node", "map_bytes", "map_array", "read_header", "parse_text_proto"),
    *("read_text", "frombuffer", "fromfile", "fromstring", "FromString", "ZipFile"),
}  # fmt: skip


def calls() -> Iterator[tuple[Path, str, int, int]]:
    """Every call of a reader in the source: its file, the function it is in, and its lines."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        if not any(name in text for name in READERS):
            continue
        tree = ast.parse(text)
        inside = {
            id(node): function.name
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in READERS:
                yield path, inside.get(id(node), ""), node.lineno, node.end_lineno or node.lineno


class Reached:
    """Lines of the source that call a reader while it lasts."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()

    def __enter__(self) -> "Reached":
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, given: Any) -> None:
        name = frame.f_code.co_name
        if name == "__init__":
            name = type(frame.f_locals.get("self")).__name__
        if event == "call" and (name in READERS or name == "XML") and frame.f_back is not None:  # ET.fromstring
            self.lines.add((frame.f_back.f_code.co_filename, frame.f_back.f_lineno))
        elif event == "c_call" and getattr(given, "__name__", "") in READERS:
            self.lines.add((frame.f_code.co_filename, frame.f_lineno))


def test_valid_documents_are_read_and_reach_every_reader(folder: Path, known: tuple[Parser, ...]) -> None:
    with Reached() as reached:
        for parser in known:
            for number in range(len(parser.seeds)):
                code = parser.read(home(parser, folder, number) / parser.opens)
                assert parser.times != SLOW or code in (0, 1), parser.name
    missed, every = set(), set()
    for path, function, first, last in calls():
        place = f"{path.relative_to(SOURCE).as_posix()}:{function}"
        every.add(place)
        if not any((str(path), line) in reached.lines for line in range(first, last + 1)):
            missed.add(place)
    # Some of what is listed is read once in a process, or only where a file lies in a certain way.
    assert missed - set(UNTRIED) == set() == set(UNTRIED) - every


_OURS = "the package's own file"
_WRITES = "what roundoff has in memory, or writes"
_INSIDE = "inside of a file that was read already"
_SAME = "a reader that other documents come to, too"
UNTRIED = {
    **dict.fromkeys((
        "case/archive.py:refuse_leaks", "demo/stories.py:_board", "graph/caffe/wire.py:_tables",
        "messages/catalogue.py:_phrases", "messages/catalogue.py:_translations", "pages/html/render.py:_asset",
        "preprocessing/conventions.py:table_rows", "report/explain.py:_page_text",
    ), _OURS),
    **dict.fromkeys((
        "case/archive.py:zip_bytes", "cli/project.py:init", "quantize/calibration/histogram.py:_fresh",
        "run/block_chain.py:_write", "suite/unit.py:compute", "suite/fetching.py:_known",
        "tensors/writer.py:begin",
        "vendors/amct/observation.py:_model", "vendors/pulsar2/deployed.py:_insert_front",
        "vendors/pulsar2/deployed.py:_give_back", "vendors/pulsar2/patches.py:_patch_nodes",
    ), _WRITES),
    **dict.fromkeys((
        "graph/caffe/layers/convolution.py:quant", "graph/caffe/net.py:_raw", "graph/caffe/net.py:_values",
        "tensors/ascend_dump/source.py:_attribute", "tensors/polygraphy.py:_text",
        "vendors/amct/caffe.py:_bytes", "vendors/amct/caffe.py:_layer",
        "vendors/ascend/layouts.py:_converted", "vendors/ascend/scales.py:_of_quant",
    ), _INSIDE),
    **dict.fromkeys((
        "api/project.py:_array_shape", "api/project.py:target_hint",
        "case/bundle.py:_check_free", "case/sources.py:_configuration",
        "vendors/amct/caffe.py:read", "vendors/ascend/comparison.py:_model_name",
        "vendors/ascend/single.py:_long_names",
        "vendors/pulsar2/ticket.py:_missed_goal",
    ), _SAME),
    "run/budget.py:_free_in_container": "what the system says",
    "run/host_arithmetic.py:cpu_features": "what the system says",
}  # fmt: skip
"""Calls that no document of the campaign comes to, each with the reason."""
