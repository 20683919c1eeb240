"""roundoff targets."""

import json
from pathlib import Path

import pytest

from roundoff.cli import main
from roundoff.quantize.targets.files import load_target, target_names

COLUMNS = 80


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_the_list_has_every_target_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets"]) == 0
    shown = lines(capsys)
    rows = {line.split()[0]: line.split() for line in shown[: len(target_names()) + 1]}
    assert set(rows) == {"name", *target_names()}
    assert " ".join(shown[-2:]).startswith("'roundoff targets NAME' shows all of one")
    assert rows["axera-ax650"][1:] == ["u8", "asym", "s8", "per", "channel", "absmax/127.5", "float"]
    assert rows["litert"][-1] == "fixed"
    assert rows["generic-power-of-two"][-4:] == ["power", "of", "two", "fixed"]
    assert rows["ascend"][-2] == "absmax/127|128"
    assert max(map(len, shown)) <= COLUMNS


@pytest.mark.parametrize("name", target_names())
def test_every_target_fits_a_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", name]) == 0
    shown = lines(capsys)
    assert shown[0] == name
    assert max(map(len, shown)) <= COLUMNS
    words = " ".join(" ".join(shown).replace(",", " ").split())
    target = load_target(name)
    for operation in (*target.quantized_ops, *target.arithmetic.tables, *target.fixed_ranges):
        assert operation in words


def test_one_target_says_how_it_computes(capsys: pytest.CaptureFixture[str]) -> None:
    main(["targets", "litert"])
    text = " ".join(capsys.readouterr().out.split())
    assert "symmetric, codes -127..127, scale absmax/127, rounds halves away from zero" in text
    assert "fixed-point multiplier of 31 bits and a shift, rounded twice; rounds halves away from zero" in text
    assert "range Softmax 0 to 0.996094" in text
    assert "shared scale Concat, Max, Min" in text


def test_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('extends = "ascend"\ndescription = "Mine."', encoding="utf-8")
    assert main(["targets", str(path)]) == 0
    shown = lines(capsys)
    assert shown[:2] == ["mine", "Mine."]
    assert "results float: only inputs are quantized" in [" ".join(line.split()) for line in shown]


def test_json_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert set(found) == set(target_names())
    assert found["axera-ax650"]["live_operand"]["symmetric_scale"] == "half_span"
    assert found["litert"]["shared_scale"] == ["Concat", "Max", "Min"]
    assert main(["targets", "litert", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [found["litert"]]


def test_an_unknown_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "generic-int"]) == 2
    assert "did you mean 'generic-int8'?" in capsys.readouterr().err


def test_targets_speak_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "litert", "--lang", "zh"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "scale 为输入 scale 与权重 scale 之积" in words
    assert "31 位定点乘数加移位" in words
