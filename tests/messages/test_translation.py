# ruff: noqa: RUF001
"""Texts that stand where they are said: the English template is the key of the Chinese one."""

import argparse
import ast
import copy
import importlib
import re
import string
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from pydantic import TypeAdapter

import roundoff
from roundoff.cli import COMMANDS, GROUPS, command_of
from roundoff.cli.parser import add_language_option
from roundoff.errors import BadInput, MissingExtra, nearest, reason
from roundoff.messages.catalogue import Language, bilingual, translate, translation, use_language
from roundoff.messages.message import Message, Translatable, english, message, shown

PACKAGE = Path(roundoff.__file__).parent
ERRORS, HELP = (
    tomllib.loads((PACKAGE / "messages" / "zh" / f"{name}.toml").read_text(encoding="utf-8"))
    for name in ("errors", "help")
)
# What argparse asks gettext for; the rest of help.toml is what our parsers show.
OF_ARGPARSE = re.compile(r"%[rs]|%\(\w+\)[rs]|^usage: $|^expected |^show ")
# Texts of ours that are made of other texts.
CHAINED = "{before}{after}"
# Functions that take a template, and where; the latter ones read the value of an option.
SAYS = dict.fromkeys(("english", "refused", "unsupported_of"), 0)
SAYS |= dict.fromkeys(("BadInput", "Refused", "WrongValue", "WrongType", "CannotRun", "NotLocal"), 0)
SAYS |= dict.fromkeys(("whole_number", "a_number", "_sizes", "input_error"), 1)


@cache
def templates() -> tuple[tuple[str, str], ...]:
    """Every template that the code says, and where."""
    return tuple(_templates())


def _templates() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SAYS:
                first = node.args[SAYS[node.func.id] :]
                if first and isinstance(first[0], ast.Constant) and isinstance(first[0].value, str):
                    yield first[0].value, f"{path.relative_to(PACKAGE)}:{node.lineno}"


def gaps(text: str) -> set[str]:
    return {gap for _, gap, _, _ in string.Formatter().parse(text) if gap is not None}


def shown_in_help() -> set[str]:
    """All that the parsers of our commands show, in English."""
    found: set[str | None] = set(COMMANDS.values())
    tools = [
        importlib.import_module(f"roundoff.cli.{name}")
        for name in ("amct", "ascend", "horizon", "pulsar2", "suite")
    ]
    subcommands = [each for tool in tools for each in tool._SUBCOMMANDS.values()]
    for command in (*map(command_of, COMMANDS), *subcommands):
        parser = argparse.ArgumentParser()
        command.declare(parser)
        add_language_option(parser)
        found.add(parser.description)
        for group in parser._action_groups:
            found |= {group.title, group.description}
        found |= {action.help for action in parser._actions}
    return {text for text in found if text and text != argparse.SUPPRESS}


def test_every_template_is_translated() -> None:
    missing = {place: text for text, place in templates() if text not in ERRORS}
    assert not missing


def test_no_translation_is_left_over() -> None:
    used = {text for text, _ in templates()} | {CHAINED}
    assert not ERRORS.keys() - used


def test_both_sides_have_the_same_gaps() -> None:
    differing = {text: chinese for text, chinese in ERRORS.items() if gaps(text) != gaps(chinese)}
    assert not differing
    placeholder = re.compile(r"%(?:\(\w+\))?[rsd]")
    for text, chinese in HELP.items():
        assert sorted(placeholder.findall(text)) == sorted(placeholder.findall(chinese)), text


def test_translations_are_chinese() -> None:
    words = re.compile(r"\b[a-z]{3,} [a-z]{2,} [a-z]{2,}")
    for text, chinese in (ERRORS | HELP).items():
        if words.search(re.sub(r"\{[^{}]*\}", "", text)):
            assert re.search("[\u4e00-\u9fff]", chinese), text


def test_all_of_help_is_translated_and_nothing_else() -> None:
    found = shown_in_help()
    assert not found - HELP.keys()
    main = {*GROUPS, "show program's version number and exit"}
    assert main <= HELP.keys()
    extra = {text for text in HELP.keys() - found - main if not OF_ARGPARSE.search(text)}
    assert all(
        text.startswith(("Find where a quantized", "Exit codes:", "Lists are written", "Every single setting"))
        for text in extra
    ), extra


@pytest.mark.parametrize(
    ("count", "said", "chinese"),
    [(1, "1 file failed, listed in out", "1 个文件失败，见 out"), (2, "2 files failed, listed in out", None)],
)
def test_numbers_choose_words(count: int, said: str, chinese: str | None) -> None:
    text = english("{count} {count:file|files} failed, listed in {output}", count=count, output=Path("out"))
    assert text == said
    assert isinstance(text, Translatable)
    assert chinese is None or text.within("zh") == chinese


@pytest.mark.parametrize("name", ["it's {odd}", '"{0}" 50%', "{count:a|b}", "模型"])
def test_what_stands_in_a_gap_is_what_it_was(name: str) -> None:
    text = english("{path} has no tensor {name!r}.", path=Path("{x}.onnx"), name=name)
    assert text == f"{{x}}.onnx has no tensor {name!r}."
    assert text.message.within("zh") == f"{{x}}.onnx 中没有张量 {name!r}。"  # type: ignore[attr-defined]


def test_a_text_in_a_gap_is_in_the_language_of_the_whole() -> None:
    inner = english("it has no scale")
    outer = english("Node {name!r} ({op_type}): {what}", name="n", op_type="Conv", what=inner)
    with use_language("zh"):
        assert shown(outer) == "节点 'n'（Conv）：它没有 scale"
        assert translate("terminal.note", text=outer) == "注意：节点 'n'（Conv）：它没有 scale"
    assert bilingual("terminal.note", text=inner).zh == "注意：它没有 scale"


def test_a_template_that_nobody_translated_stays_english_as_a_whole() -> None:
    text = english("frobnicate {what} first", what=english("it has no scale"))
    assert isinstance(text, Translatable)
    assert text.within("zh") == "frobnicate it has no scale first"


def test_it_stays_translatable_through_str_sums_and_copies() -> None:
    text = english("{path} is empty.", path="a")
    chained = text + english("give 0 or more")
    for each in (str(ValueError(text)), copy.copy(text), "" + text):
        assert isinstance(each, Translatable)
        assert each.within("zh") == "a 为空。"
    assert isinstance(chained, Translatable)
    assert chained.within("zh") == "a 为空。请给出不小于 0 的数"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_errors_and_their_reasons_keep_their_language(language: Language) -> None:
    error = MissingExtra(english("Drawing pictures"), package="matplotlib", extra="plots")
    assert error.what == "Drawing pictures needs the package 'matplotlib', which is not installed."
    noted = message("terminal.note", text=reason(error))
    assert noted.within(language) == {
        "en": "note: Drawing pictures needs the package 'matplotlib', which is not installed.",
        "zh": "注意：绘制图片需要软件包 'matplotlib'，但尚未安装。",
    }[language]  # fmt: skip
    assert reason(BadInput("what", fix="fix")) == "what"
    with use_language(language):
        assert shown(nearest("cosin", ["cosine"])) in ("did you mean 'cosine'?", "是否想写 'cosine'？")


def test_documents_hold_them_and_give_them_back() -> None:
    adapter = TypeAdapter(Message)
    text = english("{path} is empty.", path=english("The model"))
    assert isinstance(text, Translatable)
    stored = adapter.dump_json(text.message)
    assert adapter.validate_json(stored) == text.message
    assert adapter.validate_json(stored).within("zh") == "模型为空。"
    held = message("terminal.note", text=text)
    assert adapter.validate_json(adapter.dump_json(held)).within("zh") == held.within("zh")


def test_a_file_brings_no_templates_along() -> None:
    stored = {"text": "as stored", "key": "{x:>999999999}", "arguments": {"x": "y"}}
    assert str(TypeAdapter(Message).validate_python(stored)) == "as stored"
    assert translation("{x:>999999999}") is None


def test_a_gap_may_have_any_name() -> None:
    text = english("{where}: there is no key {key!r}.", where="a", key="b")
    assert text == "a: there is no key 'b'."
