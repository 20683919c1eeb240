"""Alias files and the checks on them."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import roundoff
from roundoff.align.alignment import align
from roundoff.align.names import read_aliases
from roundoff.errors import BadInput
from tests.sources import MemorySource

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(str.strip)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@given(aliases=st.dictionaries(NAMES, NAMES, max_size=6))
def test_json_round_trip(aliases: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> None:
    aliases = {partner: name for name, partner in {p: n for n, p in aliases.items()}.items()}
    path = write(tmp_path_factory.mktemp("aliases") / "a.json", json.dumps(aliases))
    assert read_aliases(path) == aliases


def test_csv_with_quotes_spaces_and_bom(tmp_path: Path) -> None:
    text = '\ufeffReference, Candidate\n"a,b", c\n\n/x/y:0,"x y"\n'
    assert read_aliases(write(tmp_path / "a.csv", text)) == {"a,b": "c", "/x/y:0": "x y"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": "x", "a": "y"}', r"names the reference tensor 'a' more than once \(with 'x', 'y'\)"),
        ('{"a": "x", "b": "x"}', r"names the candidate tensor 'x' more than once \(with 'a', 'b'\)"),
        ("reference,candidate\na,x\na,x\n", "names the reference tensor 'a' more than once"),
        ('{"a": 3}', "gives 'a' the value 3, which is no name"),
        ('{"a": ', "is not JSON"),
        ('["a", "b"]', "holds a JSON list, not an object"),
        ("a,x\nb,y\n", "starts with 'a,x', not with reference,candidate"),
        ("", "starts with 'nothing', not with reference,candidate"),
        ("reference,candidate\na\n", "entry 1, holds 'a'; two names are expected"),
        ("reference,candidate\na,\n", "entry 1, holds 'a,'; two names are expected"),
        ('reference,candidate\n"a,b\n', "cannot be read as CSV"),
        ("[" * 100_000, "is nested too deep"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        read_aliases(write(tmp_path / "aliases", text))
    assert caught.value.fix


def test_missing_and_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"The alias file .* does not exist"):
        read_aliases(tmp_path / "none.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="is not UTF-8 text"):
        read_aliases(tmp_path / "binary")


def source(*names: str) -> MemorySource:
    return MemorySource({name: np.arange(4.0) for name in names}, label="dumps")


def test_aliases_are_law() -> None:
    pairing = align(source("a", "b"), source("a", "b"), aliases={"a": "b"})
    assert [(pair.reference, pair.candidate, pair.how) for pair in pairing.pairs][:1] == [("a", "b", "alias")]
    # What aliases leave is still matched, but never against them.
    assert all(pair.candidate != "b" for pair in pairing.pairs[1:])


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(
        BadInput, match=r"The aliases name 'conv_1', which the reference dumps does not hold"
    ) as caught:
        align(source("conv1", "relu"), source("x"), aliases={"conv_1": "x"})
    assert caught.value.fix == "did you mean 'conv1'?"
    with pytest.raises(BadInput, match=r"'y' \(and 1 more\), which the candidate dumps does not hold"):
        align(source("a", "b"), source("x"), aliases={"a": "y", "b": "z"})


def test_a_long_list_of_names_is_not_printed() -> None:
    names = [f"layer{index}" for index in range(50)]
    with pytest.raises(BadInput) as caught:
        align(source("a"), source(*names), aliases={"a": "????"})
    assert caught.value.fix == "use one of its 50 names as they stand, such as layer0, layer1, layer2"


def test_one_candidate_for_two_references_is_refused() -> None:
    with pytest.raises(BadInput, match="give the candidate tensor 'x' to several reference tensors: 'a', 'b'"):
        align(source("a", "b"), source("x"), aliases={"a": "x", "b": "x"})


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match=r"The alias file .* is a pipe or a device"):
        read_aliases(tmp_path / "pipe")


def test_what_could_not_be_placed_can_be_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    reference = {name: rng.standard_normal((1, 4, 6)).astype(np.float32) for name in ("a", "b", "c")}
    # Nothing tells which is which: other names, other values, no order.
    other = {f"t{place}": rng.standard_normal((1, 4, 6)).astype(np.float32) for place in (1, 2)}
    candidate = {"a": reference["a"], **other, "odd": np.zeros(5, np.float32)}
    found = roundoff.compare(reference, candidate)
    assert found.result.state == "incomplete"
    assert found.result.judgement is not None
    placed = {each.name: (each.why, each.could_be) for each in found.result.judgement.coverage.unplaced}
    assert placed == {"t1": ("uncertain", ("b", "c")), "t2": ("uncertain", ("b", "c")), "odd": ("size", ())}
    assert "odd (5): no tensor that is left has its size" in " ".join(str(found).split())
    found.save(tmp_path / "run")
    template = tmp_path / "run" / "aliases.csv"
    assert read_aliases(template) == {}
    filled = template.read_text(encoding="utf-8").replace("\n,t1\n", "\nb,t1\n").replace("\n,t2\n", "\nc,t2\n")
    template.write_text(filled, encoding="utf-8")
    assert read_aliases(template) == {"b": "t1", "c": "t2"}
    again = roundoff.compare(reference, candidate, aliases=template)
    assert [row.how for row in again.result.rows] == ["name", "alias", "alias"]
