"""onnxruntime sends nothing: its telemetry is off before anything of ours imports it."""

import ast
import os
import shutil
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
        whole = path.read_text(encoding="utf-8")
        if not any(name in whole for name in LOADING):
            continue
        for node in ast.walk(ast.parse(whole)):
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
    assert set(seen) == {"case/archive.py", "vendors/dialects/toolkits.py"}


@pytest.mark.parametrize("folder", sorted(FIRST))
def test_nothing_beside_the_package_loads_it_before(folder: str) -> None:
    first = ast.parse((ROOT / folder / FIRST[folder]).read_text(encoding="utf-8"))
    off = switched_off(first)
    assert off is not None
    before = {name.split(".")[0] for line, name in imports(first) if line < off}
    assert before <= {"os", "pathlib", "signal", "sys"}
    assert any(loads(ast.parse(path.read_text(encoding="utf-8"))) for path in (ROOT / folder).rglob("*.py"))


def test_every_other_file_of_the_repository_is_in_such_a_folder() -> None:
    """A script that is run by its path, such as one of docs, has no package that is loaded first."""
    known = {*FIRST, "src"}
    skipped = {"node_modules", ".venv", ".git", "build", "dist"}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).parts
        if parts[0] in known or parts[0].startswith(".venv") or skipped & set(parts):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        off, lines = switched_off(tree), loads(tree)
        assert not lines or (off is not None and off < min(lines)), path


_STUDY = """
import roundoff
from pathlib import Path
folder = Path(roundoff.__file__).parent / "demo"
roundoff.layers(folder / "digits.onnx", data=folder / "samples.npy", target="generic-int8", samples=32)
"""
LONG = {
    "command": ["-m", "roundoff", "demo", "repair", "-o", "out"],
    "function": ["-c", _STUDY],
}
# Sockets between processes and threads of one machine are no network.
_LOCAL = ("AF_UNIX", "AF_NETLINK")


def without_network() -> list[str]:
    """What puts a process where there is no network at all; nothing where that is not allowed."""
    words = ["unshare", "--map-root-user", "--net"]
    usable = (
        shutil.which("unshare")
        and not subprocess.run([*words, "true"], capture_output=True, check=False).returncode
    )
    return words if usable else []


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("kind", sorted(LONG))
def test_long_runs_ask_nobody_and_leave_nothing_behind(kind: str, tmp_path: Path) -> None:
    """Without a network it goes well; and every system call of one is seen, of all threads and processes."""
    home, temporary, work = (tmp_path / name for name in ("home", "temporary", "work"))
    for folder in (home, temporary, work):
        folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONPATH": str(PACKAGE.parent)}
    trace = tmp_path / "trace.txt"
    words = ["strace", "-f", "-qq", "-e", "trace=%network", "-o", str(trace), sys.executable, *LONG[kind]]
    done = subprocess.run(
        [*without_network(), *words], env=environment, cwd=work, capture_output=True, text=True, check=False
    )
    if "ptrace" in done.stderr and not trace.read_text(encoding="utf-8"):
        pytest.skip("tracing is not allowed here")
    assert done.returncode in (0, 1), done.stderr
    calls = [line for line in trace.read_text(encoding="utf-8").splitlines() if "socket(" in line]
    assert [line for line in calls if not any(name in line for name in _LOCAL)] == []
    assert list(temporary.iterdir()) == []
    assert list(home.rglob("*")) == []
    assert {path.name for path in work.iterdir()} <= {"out"}


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_look_up_would_be_seen(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    code = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()"
    words = ["strace", "-f", "-qq", "-e", "trace=%network", "-o", str(trace), sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("tracing is not allowed here")
    assert "socket(AF_INET" in trace.read_text(encoding="utf-8")
