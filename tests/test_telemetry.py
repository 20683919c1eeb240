"""onnxruntime sends nothing: its telemetry is off before anything of ours imports it."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

VARIABLE = "ORT_DISABLE_TELEMETRY"
ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "roundoff"
# And packages that load it on their way in.
LOADING = ("onnxruntime", "nncf", "rknn", "aimet_onnx")
# What is imported before every module of a folder.
FIRST = {"benchmarks": "__init__.py", "scripts": "__init__.py", "tests": "conftest.py"}


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines and names of all modules that are imported anywhere in a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module


def loads(tree: ast.AST) -> list[int]:
    """Lines in which onnxruntime is loaded."""
    return [line for line, name in imports(tree) if name.split(".")[0] in LOADING]


def switched_off(tree: ast.Module) -> int | None:
    """The line at the top level from which on telemetry is off: by the variable, or by importing roundoff."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node) == f"os.environ['{VARIABLE}'] = '1'":
            return node.lineno
        if isinstance(node, ast.Import | ast.ImportFrom):
            lines = [line for line, name in imports(node) if name.split(".")[0] == "roundoff"]
            if lines:
                return lines[0]
    return None


def test_the_first_thing_in_the_package_is_to_switch_it_off() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    line = switched_off(tree)
    assert line is not None
    assert {name for at, name in imports(tree) if at < line} <= {"importlib", "os", "typing"}


@pytest.mark.parametrize("given", [None, "0", "", "1"])
def test_it_is_off_in_every_process(given: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {} if given is None else {VARIABLE: given}
    code = (
        "import sys, roundoff, os; assert 'onnxruntime' not in sys.modules; import onnxruntime, subprocess; "
        f"show = 'import os; print(os.environ[\\'{VARIABLE}\\'])'; print(os.environ['{VARIABLE}'], flush=True); "
        "subprocess.run([sys.executable, '-c', show], check=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "1"]


def templates() -> Iterator[tuple[str, str]]:
    """Texts in the package that are scripts and load onnxruntime, with where they are."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if any(f"import {name}" in text or f"from {name}" in text for name in LOADING):
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}", text


def test_scripts_that_are_written_switch_it_off() -> None:
    seen = []
    for place, text in templates():
        try:
            # Of templates with fields only those of names are left, and these are inside of strings.
            tree = ast.parse(text.replace("{{", "{").replace("}}", "}"))
        except SyntaxError:
            continue
        off = switched_off(tree)
        assert off is not None, place
        assert all(off < line for line in loads(tree)), place
        seen.append(place.split(":")[0])
    dialects = {f"vendors/dialects/{name}.py" for name in ("onnxruntime", "toolkits")}
    assert set(seen) == {"case/archive.py", *dialects}


@pytest.mark.parametrize("folder", sorted(FIRST))
def test_nothing_beside_the_package_loads_it_before(folder: str) -> None:
    first = ast.parse((ROOT / folder / FIRST[folder]).read_text(encoding="utf-8"))
    off = switched_off(first)
    assert off is not None
    before = {name.split(".")[0] for line, name in imports(first) if line < off}
    assert before <= {"os", "signal"}
    assert any(loads(ast.parse(path.read_text(encoding="utf-8"))) for path in (ROOT / folder).rglob("*.py"))


def test_every_other_file_of_the_repository_is_in_such_a_folder() -> None:
    """A script that is run by its path, such as one of docs, has no package that is loaded first."""
    known = {*FIRST, "src"}
    skipped = {"node_modules", ".venv", ".git", "build", "dist"}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).parts
        if parts[0] in known or skipped & set(parts):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        off, lines = switched_off(tree), loads(tree)
        assert not lines or (off is not None and off < min(lines)), path
