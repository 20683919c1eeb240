# ruff: noqa: RUF001
"""Errors in Chinese, from the words that were typed to what the terminal says."""

import re
from pathlib import Path

import pytest

from roundoff.cli import main
from roundoff.errors import BadInput


@pytest.mark.parametrize("name", ["{x}'q\"", "it's {0}", "a; b", "no such file"])
def test_a_path_stays_what_it_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert main(["dump", f"{name}.onnx", "-o", "out"]) == BadInput.exit_code
    what, fix = capsys.readouterr().err.splitlines()
    assert what == f"错误：模型 {name}.onnx 不存在。"
    assert fix.startswith("处理：请")


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "nowhere", "nothing"],
        ["quantize", "nothing.onnx", "-o", "out", "--target", "generic-int8"],
        ["explain", "nosuchword"],
        ["gate", "nowhere", "--baseline", "nothing"],
        ["report", "nowhere", "-o", "r.html"],
        ["targets", "nosuchtarget"],
        ["check-io"],
    ],
)
def test_errors_are_whole_chinese_sentences(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--lang", "zh"]) == BadInput.exit_code
    said = capsys.readouterr().err
    assert said.startswith("错误：")
    assert not re.search(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}", said), said


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["compare", "a", "b", "--threads", "0"], "参数 --threads：'0' 不是不小于 1 的整数"),
        (
            ["compare", "a", "b", "--max-memory", "x"],
            "参数 --max-memory：'x' 不是大小。请写成 500MB、2GiB 或 1.5GB",
        ),
    ],
)
def test_values_of_options_are_refused_in_chinese(
    words: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--lang", "zh"])
    assert capsys.readouterr().err.splitlines()[0].replace("。 ", "。") == f"错误：{what}"
