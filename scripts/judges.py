"""Installs the tools of judges.toml: ``python -m scripts.judges FOLDER [TOOL ...]``.

What cannot be had is said and left out; the tests of that tool are then skipped.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TOOLS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("judges.toml").read_text(encoding="utf-8"))
_STAMP = ".installed"
# What wants more of it than its name believes it absent.
_EMPTY = """def __getattr__(name):
    raise (AttributeError if name.startswith("__") else ImportError)(name)
"""


def interpreter(folder: Path, tool: str) -> Path | None:
    """The Python of an installed tool."""
    return folder / tool / "bin" / "python" if (folder / tool / _STAMP).is_file() else None


def main(folder: Path, tools: list[str]) -> int:
    """Install what is asked for, all by default."""
    for tool in tools or list(TOOLS):
        if interpreter(folder, tool) is not None:
            continue
        problem = _install(folder / tool, TOOLS[tool])
        print(f"{TOOLS[tool]['title']}: {'installed' if not problem else f'left out, {problem}'}")
    return 0


def _install(home: Path, what: Mapping[str, Any]) -> str:
    python = _find_python(what["python"])
    if python is None:
        return f"it needs Python {what['python']}, which is not there"
    shutil.rmtree(home, ignore_errors=True)
    steps = [[python, "-m", "venv", str(home)]]
    own = str(home / "bin" / "python")
    steps += [[own, "-m", "pip", "install", "-qq", *each] for each in what["steps"]]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    packages = next((home / "lib").glob("python*/site-packages"))
    for name in what.get("empty_packages", ()):
        (packages / name).mkdir(exist_ok=True)
        (packages / name / "__init__.py").write_text(_EMPTY, encoding="utf-8")
    for name in what.get("aside", ()):
        if (packages / name).exists():
            (packages / name).rename(packages / f"{name}.aside")
    done = subprocess.run(
        [own, "-c", f"import {what['check']}"], capture_output=True, text=True, check=False, env=quiet()
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["it cannot be imported"])[-1]
    (home / _STAMP).touch()
    return ""


def quiet() -> dict[str, str]:
    """The environment in which tools run: nothing is sent anywhere, one thread, nothing of our own packages."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"ORT_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def _find_python(version: str) -> str | None:
    for each in _candidates(version):
        done = subprocess.run(
            [each, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.stdout.strip() == version:
            return each
    return None


def _candidates(version: str) -> Iterator[str]:
    if found := shutil.which(f"python{version}"):
        yield found
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(home.glob(f"versions/{version}*/bin/python")))
    yield sys.executable


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
