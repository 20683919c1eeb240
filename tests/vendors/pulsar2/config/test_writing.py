"""What is written is read back the same, and uses nothing but the vendor's keys."""

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.vendors.pulsar2.config.document import read_message, to_json
from roundoff.vendors.pulsar2.config.files import load_config, parse_relaxed_json
from roundoff.vendors.pulsar2.config.schema import (
    BuildConfig,
    DataType,
    InputQuantConfig,
    LayerConfig,
    MessageField,
    QuantConfig,
    message_fields,
)
from tests.vendors.pulsar2.config.test_loading import PUBLISHED
from tests.vendors.pulsar2.published import published

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
# The vendor stores them in 32 bits; what does not fit is refused.
NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)
SCALARS: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-(2**31), 2**31 - 1),
    float: NUMBERS,
    str: TEXTS,
    dict: st.dictionaries(TEXTS, st.one_of(st.integers(-9, 9), TEXTS, st.lists(st.booleans())), max_size=2),
}


def values(field: MessageField, depth: int) -> st.SearchStrategy[Any]:
    if field.is_message:
        one: st.SearchStrategy[Any] = messages(field.kind, depth - 1)
    elif issubclass(field.kind, Enum):
        allowed = field.only or [each for each in field.kind if not each.name.startswith("Default")]
        one = st.sampled_from([*allowed, field.default] if not field.repeated else list(allowed))
    else:
        one = SCALARS[field.kind]
    if field.required and field.kind is str:
        one = TEXTS.filter(bool)
    return st.lists(one, max_size=2).map(tuple) if field.repeated else one


def messages(message: type, depth: int = 2) -> st.SearchStrategy[Any]:
    """Any message, whether its values make sense or not."""
    known = {n: f for n, f in message_fields(message).items() if not (f.is_message and depth <= 0)}
    required = {name: values(field, depth) for name, field in known.items() if field.required}
    optional = {name: values(field, depth) for name, field in known.items() if not field.required}
    chosen = st.lists(st.sampled_from(sorted(optional) or [""]), max_size=4, unique=True)
    return chosen.flatmap(
        lambda names: st.builds(message, **required, **{name: optional[name] for name in names if name})
    )


@given(messages(BuildConfig), st.booleans())
def test_any_configuration_survives_writing_and_reading(config: BuildConfig, full: bool) -> None:
    problems: list[Any] = []
    document = parse_relaxed_json(to_json(config, full=full), name="c")
    assert read_message(BuildConfig, document.value, place=(), problems=problems) == config
    assert problems == []


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), NUMBERS, TEXTS),
        lambda inner: st.one_of(st.lists(inner), st.dictionaries(TEXTS, inner)),
        max_leaves=12,
    )
)
def test_relaxed_json_reads_all_json(value: Any) -> None:
    for indent in (None, 2):
        assert parse_relaxed_json(json.dumps(value, indent=indent), name="c").value == value
        assert parse_relaxed_json(json.dumps(value, ensure_ascii=False), name="c").value == value


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_survive(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(published(f"configs/{name}"), encoding="utf-8")
    config = load_config(tmp_path / name)
    for full in (False, True):
        (tmp_path / "again.json").write_text(to_json(config, full=full), encoding="utf-8")
        assert load_config(tmp_path / "again.json") == config


def test_only_what_was_changed_is_written() -> None:
    config = BuildConfig(
        quant=QuantConfig(
            input_configs=(InputQuantConfig("x", "a.tar"),),
            layer_configs=(LayerConfig(op_types=("Conv",), data_type=DataType.U16),),
        )
    )
    assert json.loads(to_json(config)) == {
        "quant": {
            "input_configs": [{"tensor_name": "x", "calibration_dataset": "a.tar"}],
            "layer_configs": [{"data_type": "U16", "op_types": ["Conv"]}],
        }
    }
    full = json.loads(to_json(config, full=True))
    assert set(full) == {field.name for field in dataclasses.fields(BuildConfig)}
    assert full["quant"]["calibration_method"] == "MinMax"
