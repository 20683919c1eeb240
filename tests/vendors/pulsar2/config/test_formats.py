"""The same configuration in all four formats."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.errors import BadInput, MissingExtra
from roundoff.vendors.pulsar2.config import files as other_formats
from roundoff.vendors.pulsar2.config.files import load_config
from roundoff.vendors.pulsar2.config.schema import BuildConfig

PLAIN: dict[str, Any] = {
    "npu_mode": "NPU3",
    "quant": {
        "input_configs": [
            {"tensor_name": "DEFAULT", "calibration_dataset": "a.tar", "calibration_mean": [1.5, 2.0]},
            {"tensor_name": "x", "calibration_dataset": "b.tar", "calibration_std": [3.0]},
        ],
        "layer_configs": [{"op_types": ["Conv", "Gemm"], "data_type": "U16"}],
        "precision_analysis": True,
        "refine_weight_threshold": 1e-5,
    },
    "op_processors": [{"op_name": "n", "attrs": {"axis": 1, "pads": [0, 1], "mode": "edge", "keep": False}}],
}
TOML = """
npu_mode = "NPU3"
[quant]
precision_analysis = true
refine_weight_threshold = 1e-5
[[quant.input_configs]]
tensor_name = "DEFAULT"
calibration_dataset = "a.tar"
calibration_mean = [1.5, 2]
[[quant.input_configs]]
tensor_name = "x"
calibration_dataset = "b.tar"
calibration_std = [3]
[[quant.layer_configs]]
op_types = ["Conv", "Gemm"]
data_type = "U16"
[[op_processors]]
op_name = "n"
attrs = { axis = 1, pads = [0, 1], mode = "edge", keep = false }
"""
YAML = """
npu_mode: NPU3
quant:  # a comment
  precision_analysis: true
  refine_weight_threshold: 1e-5
  input_configs:
    - {tensor_name: DEFAULT, calibration_dataset: a.tar, calibration_mean: [1.5, 2]}
    - tensor_name: x
      calibration_dataset: "b.tar"
      calibration_std:
        - 3
  layer_configs:
    - op_types: [Conv, Gemm]
      data_type: U16
op_processors:
  - op_name: n
    attrs: {axis: 1, pads: [0, 1], mode: edge, keep: false}
"""
PROTOTXT = """
npu_mode: NPU3  # a comment
quant {
  precision_analysis: 1
  refine_weight_threshold: 1e-5
  input_configs { tensor_name: "DEFAULT" calibration_dataset: "a.tar" calibration_mean: 1.5 calibration_mean: 2 }
  input_configs { tensor_name: "x" calibration_dataset: "b.tar" calibration_std: 3 }
  layer_configs { op_types: ["Conv", "Gemm"] data_type: U16 }
}
op_processors {
  op_name: "n"
  attrs {
    fields { key: "axis" value { number_value: 1 } }
    fields { key: "pads" value { list_value { values { number_value: 0 } values { number_value: 1 } } } }
    fields { key: "mode" value { string_value: "edge" } }
    fields { key: "keep" value { bool_value: false } }
  }
}
"""


def loaded(folder: Path, text: str, name: str) -> BuildConfig:
    (folder / name).write_text(text, encoding="utf-8")
    return load_config(folder / name)


@pytest.mark.parametrize(("name", "text"), [("c.toml", TOML), ("c.yaml", YAML), ("c.prototxt", PROTOTXT)])
def test_all_formats_say_the_same(name: str, text: str, tmp_path: Path) -> None:
    if name.endswith("yaml"):
        pytest.importorskip("yaml")
    assert loaded(tmp_path, text, name) == loaded(tmp_path, json.dumps(PLAIN), "c.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [1]\nb: *x", "line 1, column 4: anchors, aliases and tags are not taken"),
        ("a: !!python/object:os.system x", "line 1, column 4: anchors, aliases and tags are not taken"),
        ("a: 1\na: 2", "line 2, column 1: the key 'a' stands twice"),
        ("[1]: 2", "line 1, column 1: a key must be a text"),
        ("a: [1", "line 1, column 6: "),
        ("a: 1\n--- \nb: 2", "line 2, column 1: "),
        ("quant:\n  chek: 1", "line 2: quant.chek: unknown key; did you mean 'check'?"),
        ("[" * 80 + "]" * 80, "values are nested more than 64 deep"),
    ],
)
def test_yaml_is_read_strictly(text: str, message: str, tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    with pytest.raises(BadInput) as caught:
        loaded(tmp_path, text, "c.yml")
    assert message in caught.value.what


def test_yaml_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(MissingExtra, match=r"Reading YAML needs the package 'yaml'"):
        loaded(tmp_path, YAML, "c.yaml")
    assert other_formats.parse_toml("", name="x").value == {}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.toml", "a = x", r"is not valid TOML: Invalid value \(at line 1, column 5\)\."),
        ("c.toml", "[quant]\nchek = 1", r"quant.chek: unknown key; did you mean 'check'\?"),
        ("c.prototxt", "quant { chek: 1 }", r"line 1: quant.chek: unknown key; did you mean 'check'\?"),
        ("c.prototxt", "quant {\n check: 1\n check: 0 }", r"line 2: quant.check: takes a whole number"),
        ("c.prototxt", "quant { precision_analysis: 2 }", r"quant.precision_analysis: takes true or false, not 2"),
        ("c.prototxt", "quant {", r"line 1: the text ends inside"),
        ("c.prototxt", "npu_mode: 2147483652", r"npu_mode: cannot be 2147483652"),
    ],
)
def test_other_formats_are_read_strictly(name: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        loaded(tmp_path, text, name)


@settings(max_examples=300)
@given(
    file=st.sampled_from(
        [("c.toml", TOML), ("c.yaml", YAML), ("c.prototxt", PROTOTXT), ("c.json", json.dumps(PLAIN))]
    ),
    changes=st.lists(
        st.tuples(
            st.integers(0, 2000),
            st.integers(0, 5),
            st.one_of(st.text(max_size=3), st.sampled_from(["[", "}", ": ", "- ", "&a", "1e999", "!!", "#", '"'])),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_no_damage_escapes(
    tmp_path_factory: pytest.TempPathFactory, file: tuple[str, str], changes: list[tuple[int, int, str]]
) -> None:
    name, text = file
    if name.endswith("yaml"):
        pytest.importorskip("yaml")
    for place, removed, added in changes:
        at = place % len(text)
        text = text[:at] + added + text[at + removed :]
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(BadInput):
        load_config(path)
