"""The repository guards itself: sizes, copies, links, machine names, start-up and help."""

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import roundoff
from roundoff.cli import COMMANDS, main

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "roundoff"
CODE_FOLDERS = ("src", "scripts", "benchmarks", "tests")

MAX_MODULE_LINES = 800
MAX_FILE_BYTES = 2_000_000
# A function of more statements than this must not exist twice.
MAX_COPIED_STATEMENTS = 5
HELP_COLUMNS = 80

# Home folders, scratch folders and addresses of whoever wrote the file.
MACHINE_TRACES = re.compile(
    rb"(?<![\w.~-])/(?:root|work|home/\w+|Users/\w+)/|[A-Z]:\\Users\\|\b(?:local)host\b"
    rb"|\b(?:127\.0|10\.\d+|192\.168)\.\d+\.\d+\b"
)
MARKDOWN_LINK = re.compile(r"\[[^\]]*\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
FENCED_CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def published_files() -> list[Path]:
    """Every file that is, or would be, under version control."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = (ROOT / os.fsdecode(name) for name in listed.split(b"\0") if name)
    return [path for path in paths if path.is_file()]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Facts:
    """What is asked of a module: its tree would take too much memory to be kept, and too long to be made again.

    Attributes:
        functions: Each function that is long enough to matter: its line, name and shape.
        classes: Names of classes.
        imported: Names of modules that are imported whole.
        passes_on: Whether it imports from other modules at its top level.
        assigned: Names that it assigns at its top level.
    """

    functions: tuple[tuple[int, str, str], ...]
    classes: tuple[str, ...]
    imported: frozenset[str]
    passes_on: bool
    assigned: frozenset[str]


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def facts(path: Path) -> Facts:
    tree = parsed(path)
    nodes = list(ast.walk(tree))
    found = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    shapes = [(node.lineno, node.name, shape(node)) for node in found]
    return Facts(
        tuple((line, name, each) for line, name, each in shapes if each is not None),
        tuple(node.name for node in nodes if isinstance(node, ast.ClassDef)),
        frozenset(name.name for node in nodes if isinstance(node, ast.Import) for name in node.names),
        any(isinstance(node, ast.ImportFrom) for node in tree.body),
        frozenset(
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        ),
    )


def run_python(code: str) -> str:
    """Standard output of a fresh interpreter that sees an 80-column terminal."""
    environment = {**os.environ, "COLUMNS": str(HELP_COLUMNS), "NO_COLOR": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout


def test_modules_are_short() -> None:
    lengths = {relative(path): len(path.read_bytes().splitlines()) for path in python_files(*CODE_FOLDERS)}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_MODULE_LINES} == {}


class _Anonymous(ast.NodeTransformer):
    """Renames the function's own names in order of appearance, so that renamed copies look the same."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        bound = [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]
        bound += [
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        self._names = {name: f"v{index}" for index, name in enumerate(dict.fromkeys(bound))}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self._names.get(node.arg, node.arg), None)


def body_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    return function.body[1:] if ast.get_docstring(function) is not None else function.body


def shape(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """A hash of the kinds of nodes, which copies share; None for functions too short to matter."""
    nodes = [node for top in body_of(function) for node in ast.walk(top)]
    if sum(isinstance(node, ast.stmt) for node in nodes) <= MAX_COPIED_STATEMENTS:
        return None
    return hashlib.sha256(" ".join(type(node).__name__ for node in nodes).encode()).hexdigest()


def fingerprint(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """A hash that renamed copies share."""
    body = body_of(function)
    anonymous = _Anonymous(function)
    text = "\n".join(ast.dump(anonymous.visit(statement)) for statement in body)
    return hashlib.sha256(text.encode()).hexdigest()


def test_no_function_is_a_copy_of_another() -> None:
    paths = python_files("src", "scripts", "benchmarks")
    shapes = Counter(each for path in paths for _, _, each in facts(path).functions)
    places: dict[str, list[str]] = defaultdict(list)
    # Only what has the shape of another can be its copy.
    for path in paths:
        alike = {(line, name) for line, name, each in facts(path).functions if shapes[each] > 1}
        for node in ast.walk(parsed(path)) if alike else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.lineno, node.name) in alike:
                places[fingerprint(node)].append(f"{relative(path)}:{node.lineno} {node.name}")
    assert [where for where in places.values() if len(where) > 1] == []


def test_renamed_copies_are_recognised() -> None:
    source = """
def first(values):
    "Doc."
    total = 0
    for value in values:
        if value > 1:
            total += value
        else:
            total -= 1
    return total

def second(numbers):
    result = 0
    for number in numbers:
        if number > 1:
            result += number
        else:
            result -= 1
    return result

def other(numbers):
    result = 0
    for number in numbers:
        if number > 2:
            result += number
        else:
            result -= 1
    return result
"""
    nodes: list[ast.FunctionDef] = ast.parse(source).body  # type: ignore[assignment]
    assert len({shape(node) for node in nodes}) == 1
    first, second, other = map(fingerprint, nodes)
    assert first == second != other


def test_class_names_are_unique() -> None:
    owners: dict[str, list[str]] = {}
    for path in python_files("src"):
        for name in facts(path).classes:
            owners.setdefault(name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in owners.items() if len(places) > 1} == {}


def test_only_the_command_line_has_seen_a_parser() -> None:
    imports = {relative(path): facts(path).imported for path in python_files("src")}
    assert {path for path, names in imports.items() if "argparse" in names and "/cli/" not in path} == set()


def test_every_package_is_described() -> None:
    """ADR 2 has a row for each package, which names the packages in it; CONTRIBUTING's order has each, too."""
    described = (ROOT / "docs/adr/0002-layers.md").read_text(encoding="utf-8")
    rows = {row.split("`")[1]: row for row in described.splitlines() if row.startswith("| `")}
    order = set(re.findall(r"\w+", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("```")[3]))
    missing = []
    for path in (each.parent.relative_to(ROOT / "src/roundoff") for each in python_files("src/roundoff")):
        parts = path.parts
        if len(parts) == 1 and (parts[0] not in rows or parts[0] not in order):
            missing.append(parts[0])
        elif len(parts) > 1 and f"`{parts[-1]}/`" not in rows.get(parts[0], ""):
            missing.append(str(path))
    assert sorted(set(missing)) == []
    assert {name for name in rows if not list((ROOT / "src/roundoff").glob(f"{name}*"))} == set()


def test_packages_list_what_they_pass_on() -> None:
    """Public is what has no underscore; only what is imported to be imported again is listed."""
    silent = []
    for path in python_files("src"):
        passes_on = path.name == "__init__.py" and facts(path).passes_on
        if passes_on and "__all__" not in facts(path).assigned:
            silent.append(relative(path))
    assert silent == []


def test_no_file_names_the_machine_it_was_written_on() -> None:
    traces = {
        relative(path): [trace.decode(errors="replace") for trace in found]
        for path in published_files()
        if (found := MACHINE_TRACES.findall(path.read_bytes()))
    }
    assert traces == {}


def test_no_file_is_large() -> None:
    sizes = {relative(path): path.stat().st_size for path in published_files()}
    assert {path: size for path, size in sizes.items() if size > MAX_FILE_BYTES} == {}


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for path in published_files():
        if path.suffix != ".md":
            continue
        text = FENCED_CODE.sub("", path.read_text(encoding="utf-8"))
        for target in MARKDOWN_LINK.findall(text):
            file = target.partition("#")[0]
            if file and not re.match(r"[a-z][a-z0-9+.-]*:", file) and not (path.parent / file).exists():
                broken.append(f"{relative(path)}: {target}")
    assert broken == []


def test_every_page_of_the_documentation_is_reachable_from_its_index() -> None:
    docs = ROOT / "docs"
    seen, waiting = set(), [docs / "index.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        links = MARKDOWN_LINK.findall(page.read_text(encoding="utf-8"))
        waiting += [page.parent / link.partition("#")[0] for link in links]
    assert [relative(page) for page in sorted(docs.rglob("*.md")) if page not in seen] == []


def loaded_by(statement: str, *packages: str) -> set[str]:
    """Which of the packages a fresh interpreter has imported after running the statement."""
    report = f"print('\\n' + json.dumps([name for name in {packages!r} if name in sys.modules]))"
    return set(json.loads(run_python(f"import json, sys\n{statement}\n{report}").splitlines()[-1]))


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import roundoff", "numpy", "onnx", "onnxruntime", "rich", "pydantic", "argparse") == set()


def test_help_loads_nothing_heavy() -> None:
    ask = "from roundoff.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    assert loaded_by(ask, "numpy", "onnx", "onnxruntime", "pydantic", "PIL", "safetensors") == set()
    # Nor does the help of a command: what it is made of is imported when it runs.
    every = "from roundoff.cli import COMMANDS, command_of\nlist(map(command_of, COMMANDS))"
    assert loaded_by(every, "numpy", "onnx", "onnxruntime", "pydantic", "PIL", "safetensors") == set()


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS)], ids=["roundoff", *COMMANDS])
def test_help_fits_a_terminal(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(HELP_COLUMNS))
    monkeypatch.setenv("NO_COLOR", "1")
    with pytest.raises(SystemExit) as left:
        main([*words, "--help"])
    text = capsys.readouterr().out
    assert left.value.code == 0
    assert "Usage:" in text
    assert [line for line in text.splitlines() if len(line) > HELP_COLUMNS] == []


def test_every_command_says_what_it_does_in_one_line() -> None:
    text = run_python("from roundoff.cli import main\nmain(['--help'])")
    for name in COMMANDS:
        assert re.search(rf"^ +{name} +\w", text, re.MULTILINE), name


def test_the_version_is_stated() -> None:
    assert re.match(r"roundoff \d+\.\d+\.\d+", run_python("from roundoff.cli import main\nmain(['--version'])"))


# Modules of ours that `diagnose --fix` executes on the demo: what it does not use, it does not import. Half of the
# 339 that one diagnosis executed before every question had its folder.
MOST_EXECUTED = 169


def test_a_diagnosis_executes_what_it_uses_alone(tmp_path: Path) -> None:
    data = Path(roundoff.__file__).parent / "demo"
    words = [
        *("diagnose", str(data / "digits.onnx"), "--target", "generic-int8", "--data", str(data / "samples.npy")),
        *("--fix", "-o", str(tmp_path / "run"), "--html", str(tmp_path / "x.html")),
    ]
    code = (
        f"import sys\nfrom roundoff.cli import main\nmain({words!r})\n"
        "print('\\n' + str(sum(name.split('.')[0] == 'roundoff' for name in sys.modules)))"
    )
    assert int(run_python(code).splitlines()[-1]) <= MOST_EXECUTED
