"""Documents of strangers: whatever they hold, they are read or refused by name, and at once."""

import ast
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roundoff
from roundoff.align.names import read_aliases
from roundoff.core.array_files import Unreadable
from roundoff.core.document import load_document
from roundoff.core.untrusted import (
    DEEPEST,
    csv_records,
    parse_csv,
    parse_json,
    parse_toml,
    read_json,
    whole_number,
)
from roundoff.errors import BadInput
from roundoff.quantize.planning.rules import load_rules
from roundoff.quantize.targets.files import load_target
from roundoff.samples.labels import load_labels
from roundoff.search.cost import load_costs
from roundoff.studies.run_diff.gate import read_budgets
from roundoff.tensors.pickled import read_pickled
from roundoff.vendors.pulsar2.config.files import parse_yaml

MANY_DIGITS = "9" * 5000
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_what_json_writes_is_read(value: Any) -> None:
    assert parse_json(json.dumps(value), "x") == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"), "x") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": ' + MANY_DIGITS + "}", "x holds a number of too many digits"),
        ('{"a": [' + "9" * 30 + "]}", "x holds a number of too many digits"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "x is nested too deep"),
        ("[1," * 5000 + "1" + "]" * 5000, "x is nested too deep"),
        ('{"\\ud800": 1}', "x holds half a surrogate pair"),
        ('["\\udc00"]', "x holds half a surrogate pair"),
        ('{\n "a" 1}', r"x is not JSON: .* \(line 2, column 6\)"),
        (b"\xff{}", "x is not UTF-8 text: byte 0"),
    ],
)
def test_json_beyond_the_limits_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_json(text, "x")


def test_what_is_within_the_limits_is_taken() -> None:
    assert parse_json("[" * DEEPEST + "]" * DEEPEST, "x")
    assert parse_json("[0.12345678901234567890123, 18446744073709551615]", "x")[1] == 2**64 - 1
    assert parse_json('"\\ud83d\\ude00"', "x") == "\U0001f600"
    assert parse_json('["\\ud800"]', "x", surrogates=True) == ["\ud800"]
    assert parse_json('{"a": 1, "a": 2}', "x") == {"a": 2}
    assert parse_json(b"\xef\xbb\xbf{}", "x") == {}
    with pytest.raises(BadInput, match="x: the key 'a' stands twice in one object"):
        parse_json('{"a": 1, "a": 2}', "x", twice=BadInput)


@pytest.mark.parametrize(
    "text",
    [f"a = {MANY_DIGITS}", "a = " + "[" * 5000, "a" + ".a" * 20_000 + " = 1", "x = {a" + ".a" * 20_000 + " = 1}"],
)
def test_toml_beyond_the_limits_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"too many digits|nested too deep"):
        parse_toml(text, "x")


def test_toml_with_long_words_and_dots_is_taken() -> None:
    text = 'a.b.c = "' + "word. " * 90 + '"\nd = "' + "x" * 100_000 + '"'
    assert parse_toml(text, "x") == tomllib.loads(text)


def test_csv_is_read_by_rows() -> None:
    assert parse_csv(b'\xef\xbb\xbfa,"b\nc"\n\n1,2\n', "x") == [["a", "b\nc"], ["1", "2"]]
    assert parse_csv("a; b", "x", separator=";") == [["a", " b"]]
    assert parse_csv("a, b", "x", strict=True) == [["a", "b"]]
    with pytest.raises(BadInput, match="x cannot be read as CSV"):
        parse_csv('"a', "x", strict=True)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"The plan .* is a folder, not a file"):
        read_json(tmp_path, what="The plan")


READERS = [load_target, load_rules, load_costs, read_budgets, read_aliases, load_document]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@pytest.mark.parametrize(
    "content",
    [
        f"a = {MANY_DIGITS}",
        '{"a": ' + MANY_DIGITS + "}",
        "a = " + "[" * 5000,
        "[" * 100_000,
        "a" + ".a" * 20_000 + " = 1",
    ],
    ids=["digits in TOML", "digits in JSON", "deep TOML", "deep JSON", "parts of a key"],
)
def test_every_reader_of_documents_refuses_them(reader: Any, content: str, tmp_path: Path) -> None:
    for ending in (".json", ".toml"):
        path = tmp_path / f"odd{ending}"
        path.write_text(content, encoding="utf-8")
        with pytest.raises(BadInput, match="odd"):
            reader(path)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 30_000])
def test_yaml_of_brackets_is_refused_before_it_is_scanned(text: str) -> None:
    with pytest.raises(BadInput, match="nested too deep"):
        parse_yaml(text, name="c.yaml")


@pytest.mark.parametrize(
    "shape",
    ["(99999999999999,)", "((((((((((((", f"({MANY_DIGITS},)", "(3,)"],
    ids=["huge", "open", "digits", "short"],
)
def test_damaged_labels_are_refused(shape: str, tmp_path: Path) -> None:
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    path = tmp_path / "labels.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(BadInput, match=r"cannot be read as a \.npy file"):
        load_labels(path, ["a"])


def test_pickles_that_expand_are_refused() -> None:
    # A pair of the pair before, sixty times: 2 ** 60 values in 400 bytes.
    doubling = b"\x80\x04)\x94" + b"".join(
        b"0h" + bytes([at]) * 1 + b"h" + bytes([at]) + b"\x86\x94" for at in range(60)
    )
    for content in (doubling + b".", b"\x80\x02)" + b"\x85" * 3000 + b"."):
        with pytest.raises(Unreadable, match="nested too deep"):
            read_pickled(content)


SLOW_YAML = {
    "block mappings": "\n".join(" " * depth + "a:" for depth in range(1000)),
    "block sequences": "- " * 5000 + "a",
    "keys": "? " * 20_000,
    "tokens": "- a\n" * 60_000,
    "size": "#" * 2_000_000,
}


@pytest.mark.parametrize("text", SLOW_YAML.values(), ids=SLOW_YAML)
def test_yaml_that_takes_long_is_stopped(text: str) -> None:
    with pytest.raises(BadInput, match=r"nested too deep|larger than any configuration"):
        parse_yaml(text, name="c.yaml")


@pytest.mark.parametrize("text", ["a: 9999-99-99", f"a: {MANY_DIGITS}", "a: !!python/name:os.system", "a: &b 1"])
def test_yaml_of_odd_values_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"c\.yaml"):
        parse_yaml(text, name="c.yaml")


def test_tables_are_read_by_column_and_line() -> None:
    names, records = csv_records(b'a,b\n1,"x\ny"\n\n2\n3,4,5\n\xff,\n', "x")
    assert names == ["a", "b"]
    assert records == [
        (3, {"a": "1", "b": "x\ny"}),
        (5, {"a": "2", "b": ""}),
        (6, {"a": "3", "b": "4"}),
        (7, {"a": "\ufffd", "b": ""}),
    ]
    assert csv_records(b"", "x") == ([], [])
    with pytest.raises(BadInput, match="x cannot be read as CSV"):
        csv_records(b"a\n" + b"x" * 200_000, "x")


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("007", 7), (str(2**64 - 1), 2**64 - 1), (str(2**64), None), (MANY_DIGITS, None), ("\u00b2", None),
     ("\u0663", None), ("-1", None), ("", None), ("1_0", None)],
)  # fmt: skip
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole_number(text) == number


# What parses a text, and the files that may call it: on texts of ours (shipped with the package, or written a line
# before), and here.
PARSERS = {
    "json.load", "json.loads", "tomllib.load", "tomllib.loads", "csv.reader", "csv.DictReader", "yaml.scan",
    "json.JSONDecoder", "yaml.load", "yaml.safe_load", "yaml.SafeLoader", "yaml.compose", "tarfile.open",
    "pickle.load", "pickle.loads", "shelve.open", "marshal.loads", "configparser.ConfigParser",
    "ElementTree.parse", "ElementTree.fromstring",
}  # fmt: skip
OWN_TEXTS = {
    "core/untrusted.py": {
        "json.loads",
        "json.JSONDecoder",
        "tomllib.loads",
        "csv.reader",
        "yaml.scan",
        "yaml.SafeLoader",
    },
    "samples/files.py": {"tarfile.open"},
    "demo/stories.py": {"json.loads"},
    "graph/caffe/wire.py": {"tomllib.loads"},
    "measure/verdicts.py": {"tomllib.loads"},
    "messages/catalogue.py": {"tomllib.loads"},
    "preprocessing/conventions.py": {"tomllib.loads"},
    "vendors/amct/observation.py": {"json.loads"},
    "vendors/dialects/chips.py": {"json.loads"},
    "vendors/pulsar2/config/files.py": {"json.loads"},
}


def test_no_other_file_parses_documents() -> None:
    source = Path(roundoff.__file__).parent
    found: dict[str, set[str]] = {}
    for path in source.rglob("*.py"):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if any(name in text for name in PARSERS) else ():
            if isinstance(node, ast.Call) and ".".join(ast.unparse(node.func).split(".")[-2:]) in PARSERS:
                called = ".".join(ast.unparse(node.func).split(".")[-2:])
                found.setdefault(path.relative_to(source).as_posix(), set()).add(called)
    assert found == OWN_TEXTS
