"""Rankings that were saved."""

import json
from pathlib import Path

import pytest

from roundoff.errors import BadInput
from roundoff.studies.partial.study import read_ranking

OLD_TABLE = """\
==========================node==========================
Node        cosine-similarity   mse
--------------------------------------------------------
Conv_3      0.999009567957658   0.027825591154396534
MaxPool_2   0.9993462241612948  0.017706592209064044
"""
NEW_TABLE = """\
=================node sensitivity=================
node                  cosine-similarity  mse
---------------------------------------------------
Conv_60               0.77795            68.02103
Conv 48               0.78428            64.36318
"""
DOCUMENT = {
    "schema": 1,
    "sensitivity": {
        "rankings": {
            "node": [
                {"rank": 1, "score": {"subject": {"name": "a"}}},
                {"rank": 2, "score": {"subject": {"name": "b"}}},
            ],
            "weight": [{"rank": 1, "score": {"subject": {"name": "w"}}}],
        }
    },
}


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("a.log", OLD_TABLE, ("Conv_3", "MaxPool_2")),
        ("a.log", NEW_TABLE, ("Conv_60", "Conv 48")),
        ("a.txt", "# mine\nconv1\n\nconv2\nconv1\n", ("conv1", "conv2")),
        ("a.csv", "rank,name,kind\n1,a,node\n2,w,weight\n3,'=b,node\n", ("a", "=b")),
        ("a.csv", "a,0.5\nb,0.6\n", ("a", "b")),
        ("a.json", json.dumps(DOCUMENT), ("a", "b")),
        ("a.json", '["a", "b"]', ("a", "b")),
        ("a.csv", 'name\n"a\nb"\nc\n', ("a\nb", "c")),
        ("a.json", '{"a": {"cosine": "0.9"}, "b": {"cosine": "0.99"}}', ("a", "b")),
    ],
)
def test_what_is_read(name: str, text: str, names: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert read_ranking(file, "node") == names


def test_a_folder_with_a_document(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    assert read_ranking(tmp_path, "weight") == ("w",)


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.json", json.dumps(DOCUMENT), "ranks nothing of the kind activation"),
        ("a.json", "{", "is not JSON"),
        ("a.txt", "\n\n", "ranks nothing"),
        ("a.json", '{"schema": 1, "command": [], "accumulation": {}}', "ranks nothing of the kind activation"),
        ("a.json", '{"sensitivity": {"rankings": 5}}', "ranks nothing of the kind activation"),
        ("a.json", "[" * 100_000, "is nested too deep"),
        ("a.csv", "", "ranks nothing"),
    ],
)
def test_what_is_not(name: str, text: str, what: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=what) as caught:
        read_ranking(file, "activation")
    assert "one name per line" in caught.value.fix
