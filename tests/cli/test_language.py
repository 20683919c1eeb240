# ruff: noqa: RUF001
"""--lang: which language is spoken, and what it leaves alone."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

from roundoff.cli import COMMANDS, main
from roundoff.cli.parser import LANGUAGE_VARIABLE, chosen_command, chosen_language, without_language
from roundoff.cli.terminal import Terminal
from roundoff.errors import BadInput
from roundoff.messages.catalogue import current_language


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(LANGUAGE_VARIABLE, raising=False)
    for side, factor in (("a", 1.0), ("b", 2.0)):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "conv.npy", factor * np.arange(1, 9, dtype=np.float32))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["--lang", "zh", "compare", "a", "b"],
        ["--lang=zh", "compare", "a", "b"],
        ["compare", "a", "b", "--lang", "zh"],
        ["compare", "--lang=zh", "a", "b"],
        ["--lang", "en", "compare", "a", "b", "--lang", "zh"],
    ],
)
def test_it_may_stand_before_and_behind_the_command(
    words: list[str], pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    assert capsys.readouterr().out.startswith("未通过")
    assert current_language() == "en"


def test_the_environment_chooses_where_no_option_does(
    pair: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LANGUAGE_VARIABLE, "zh")
    main(["compare", "a", "b"])
    assert capsys.readouterr().out.startswith("未通过")
    main(["compare", "a", "b", "--lang", "en"])
    assert capsys.readouterr().out.startswith("FAIL")
    monkeypatch.setenv(LANGUAGE_VARIABLE, "tlh")
    assert main(["compare", "a", "b"]) == 2
    assert "ROUNDOFF_LANG is 'tlh'" in capsys.readouterr().err


def test_errors_have_labels_in_the_language(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "a", "nowhere", "--lang", "zh"]) == 2
    what, fix = capsys.readouterr().err.splitlines()
    assert what.startswith("错误")
    assert fix.startswith("处理")
    with pytest.raises(SystemExit):
        main(["compare", "a", "--lang", "zh"])
    assert capsys.readouterr().err.startswith("错误")


def test_documents_know_nothing_of_it(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = []
    for words in (["compare", "a", "b", "--json"], ["--lang", "zh", "compare", "a", "b", "--json"]):
        main(words)
        document = json.loads(capsys.readouterr().out)
        for changing in ("elapsed_s", "finished"):
            document["environment"].pop(changing)
        documents.append(document)
    assert documents[0] == documents[1]


def test_reports_open_in_it(pair: Path) -> None:
    for language in ("en", "zh"):
        main(["compare", "a", "b", "--html", f"{language}.html", "--lang", language])
        assert f'<html lang="{language}"' in Path(f"{language}.html").read_text(encoding="utf-8")


def test_words_are_told_apart() -> None:
    words = ["--lang", "zh", "layers", "m.onnx", "--lang=en"]
    assert without_language(words) == ["layers", "m.onnx"]
    assert chosen_command(words) == "layers"
    assert chosen_language(words) == "en"
    assert chosen_command(["--lang"]) is None


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "C", "LC_MESSAGES": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", LANGUAGE_VARIABLE: "en"}, "en"),
        ({"LANG": ""}, "en"),
    ],
)
def test_the_locale_chooses_where_nothing_else_does(
    variables: dict[str, str], language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert chosen_language([]) == language
    assert chosen_language(["--lang", "en"]) == "en"
    assert chosen_language(["--lang", "zh"]) == "zh"


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_in_chinese_fits_80_columns(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("用法")
    assert any("显示此帮助并退出" in line for line in lines)
    assert max(map(cell_len, lines)) <= 80
    # Another parser, and another reader, are not changed by it.
    with pytest.raises(SystemExit):
        main([*command.split(), "--help", "--lang", "en"])
    assert "show this help message" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        (["compare", "a"], "缺少以下参数：CANDIDATE", "见 'roundoff compare --help'"),
        (["{x}'q"], '没有命令 "{x}\'q"', "见 'roundoff --help'"),
        (["layer"], "没有命令 'layer'", "是否想写 'layers'？ 见 'roundoff --help'"),
        (["compare", "a", "b", "--{x}"], "无法识别的参数：--{x}", "见 'roundoff compare --help'"),
        (["compare", "a", "b", "--json", "--csv"], "参数 --csv：不能与参数 --json 同时使用", None),
        (["compare", "a", "b", "--sort", "up"], "参数 --sort：无效的选择：'up'（可选：'order', 'worst'）", None),
        (["compare", "a", "b", "--rows"], "参数 --rows：应有一个值", None),
    ],
)
def test_what_is_wrong_with_options_is_said_in_chinese(
    words: list[str], what: str, fix: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--lang", "zh"])
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"错误：{what}"
    assert fix is None or said[1] == f"处理：{fix}"


def test_a_wrong_language_is_left_to_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LANGUAGE_VARIABLE, "tlh")
    assert chosen_language(["--lang", "fr"]) == "en"
    with pytest.raises(BadInput, match="tlh"):
        chosen_language([])
    with pytest.raises(SystemExit):
        main(["explain", "cosine", "--lang", "fr"])


@pytest.mark.parametrize("word", ["checked", "检查"])
def test_long_notes_fit_the_screen_in_every_language(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    terminal.err.width = 40
    terminal.wrapped(f"{word} " * 20)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1
    assert all(cell_len(line) <= 40 for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])
    assert "".join(line.strip() for line in lines).replace(" ", "").count(word) == 20


@pytest.mark.parametrize("words", [["pulsar2", "build"], ["ascend", "compare"], ["amct", "calibration"]])
def test_commands_with_words_of_their_own_take_it_anywhere(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for value, start in (("zh", "错误"), ("xx", "error: argument --lang: invalid choice")):
        try:
            code = main([*words, "--lang", value])
        except SystemExit as left:
            code = int(left.code or 0)
        error = capsys.readouterr().err
        assert code == 2
        assert "flag '--lang'" not in error
        assert error.startswith(start) or value == "zh"


def test_its_beginning_is_not_taken_in_vain(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["compare", "a", "b", "--lan", "zh"])
    assert capsys.readouterr().out.startswith("未通过")


@pytest.mark.parametrize("words", [["--lang", "zh", "pulsar2"], ["pulsar2", "--lang=zh"], ["pulsar2"]])
def test_commands_that_stand_in_for_others_take_it(
    words: list[str], pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behind = [] if len(words) > 1 else ["--lang", "zh"]
    assert main([*words, "build", "--config", "nowhere.json", *behind]) == 2
    what, fix = capsys.readouterr().err.splitlines()
    assert what.startswith("错误")
    assert "nowhere.json" in what
    assert fix.startswith("处理")


def test_commands_that_stand_in_for_others_refuse_others(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["pulsar2", "build", "--config", "nowhere.json", "--lang", "tlh"])
    assert stop.value.code == 2
    assert "argument --lang: invalid choice: 'tlh'" in capsys.readouterr().err
