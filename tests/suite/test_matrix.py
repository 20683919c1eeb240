"""Suites: which units a file comes to, what their hashes depend on, and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from roundoff.errors import BadInput
from roundoff.suite.matrix import load_suite
from tests.models import conv_net
from tests.suite.zoo import SUITE, make_zoo


def keys(file: Path) -> dict[str, str]:
    return {unit.label: unit.key for unit in load_suite(file).units}


def test_a_matrix_comes_to_units(tmp_path: Path) -> None:
    text = (
        SUITE.replace('targets = ["generic-int8"]', 'targets = ["generic-int8", "litert"]')
        + """
[commands.diagnose]
targets = ["generic-int8"]
models = ["n*"]
[commands.evaluate]
split = 4
[models.deployed]
model = "net.onnx"
data = "samples.npy"
quantized = "net.onnx"
commands = ["audit"]
[commands.audit]
models = ["deployed"]
"""
    )
    found = load_suite(make_zoo(tmp_path, text))
    assert [unit.label for unit in found.units] == [
        "net/generic-int8/layers",
        "net/litert/layers",
        "net/generic-int8/diagnose",
        "net/generic-int8/evaluate[0:4]",
        "net/generic-int8/evaluate[4:6]",
        "net/litert/evaluate[0:4]",
        "net/litert/evaluate[4:6]",
        "deployed/audit",
    ]
    assert len({unit.key for unit in found.units}) == len(found.units)
    assert found.units[3].span == (0, 4)
    assert found.store == str(tmp_path / "store")
    assert load_suite(tmp_path / "suite.toml", only=["net/*/layers"]).units == found.units[:2]


def test_a_key_is_of_all_that_the_result_depends_on_and_of_nothing_else(tmp_path: Path) -> None:
    file = make_zoo(tmp_path)
    first = keys(file)
    # Another place, another order of sets in another process, another date: the same work.
    (tmp_path / "elsewhere").mkdir()
    other = make_zoo(tmp_path / "elsewhere", SUITE.replace("[models.net]", "[models.net2]"))
    assert set(keys(other).values()) == set(first.values())
    code = (
        "from roundoff.suite.matrix import load_suite\nfrom pathlib import Path\n"
        f"print(load_suite(Path({str(file)!r})).units[0].key)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() in first.values()
    for change in (
        SUITE.replace("samples = 6", "samples = 7"),
        SUITE.replace("generic-int8", "litert"),
        SUITE + 'method = "local"\n',
        SUITE.replace("samples = 6", "samples = 6\nthreads = 2"),
    ):
        file.write_text(change, encoding="utf-8")
        assert not set(keys(file).values()) & set(first.values()), change
    file.write_text(SUITE, encoding="utf-8")
    np.save(tmp_path / "samples.npy", np.zeros((12, 3, 8, 8), np.float32))
    assert not set(keys(file).values()) & set(first.values())


def test_external_data_and_listed_samples_belong_to_the_content(tmp_path: Path) -> None:
    text = SUITE.replace("samples.npy", "list.txt")
    file = make_zoo(tmp_path, text)
    onnx.save(conv_net(), tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", np.full((1, 3, 8, 8), number, np.float32))
    (tmp_path / "list.txt").write_text("0.npy\n1.npy\n", encoding="utf-8")
    first = keys(file)
    weights = bytearray((tmp_path / "net.data").read_bytes())
    weights[3] ^= 1
    (tmp_path / "net.data").write_bytes(weights)
    second = keys(file)
    np.save(tmp_path / "1.npy", np.full((1, 3, 8, 8), 9, np.float32))
    third = keys(file)
    assert len({first.popitem()[1], second.popitem()[1], third.popitem()[1]}) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SUITE + "[comands.x]\n", "comands"),
        (SUITE + "[commands.layrs]\n", "layrs"),
        (SUITE + "metod = 1\n", "metod"),
        (SUITE.replace("[options]", "[options]\nsampels = 3"), "sampels"),
        (SUITE.replace('model = "net.onnx"', 'model = "nett.onnx"'), "does not exist"),
        (SUITE.replace('targets = ["generic-int8"]', ""), "names no chip"),
        (SUITE.replace("generic-int8", "generic-int9"), "generic-int9"),
        (SUITE.replace('name = "zoo"', 'name = "../zoo"'), "no name of a suite"),
        (SUITE + "split = 3\n", "only 'evaluate'"),
        (SUITE + "[commands.evaluate]\nsplit = 0\n", "split is 0"),
        (SUITE + "[goals]\nmin_output_db = 'x'\n", "min_output_db is 'x'"),
        (SUITE + "[goals]\nmax_regression = 'much'\n", "max_regression is 'much'"),
        (SUITE + "[goals]\nmetrics = 'top-1'\n", "metrics is 'top-1'"),
        (SUITE + "[goals]\nmetrics = ['top-1']\n", "'top-1' is no budget"),
        (SUITE + "[boards.x]\npush = 'a'\n", "no command 'run'"),
        (SUITE + "[boards.x]\npush = 'a'\nrun = 'a'\npull = 'a'\n", "no model that runs there"),
        ('name = "empty"\n', "no unit"),
        ("name = [", "not valid TOML"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_way_on(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        load_suite(make_zoo(tmp_path, text))
    assert said in str(refused.value)
    assert refused.value.fix


@pytest.mark.parametrize(
    ("text", "said", "fix"),
    [
        ('commands = ["quantize"]', "commands is ['quantize'], which is no table", "[commands.quantize]"),
        ('models = "net.onnx"', "models is 'net.onnx', which is no table", "[models.NAME]"),
        ("options = 3", "options is 3, which is no table", "write a table: [options]"),
    ],
)
def test_what_must_be_tables_is_shown_as_one(tmp_path: Path, text: str, said: str, fix: str) -> None:
    file = tmp_path / "suite.toml"
    file.write_text(text)
    with pytest.raises(BadInput) as refused:
        load_suite(file)
    assert said in refused.value.what
    assert fix in str(refused.value.fix)
