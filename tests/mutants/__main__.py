"""``python -m tests.mutants [PATTERN ...]`` plants faults in a copy of the code; 1 when one is not noticed."""

import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_GOLDEN = "tests/goldens/test_goldens.py::test_a_command_gives_what_it_gave"
# What pytest ends with.
_PASSED, _FAILED = 0, 1


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        name: What is wrong.
        file: Where, as an ending of a path, should the code stand in several places.
        code: The right code.
        fault: What takes its place.
        goldens: Golden cases that must notice.
        tests: Tests that must notice by themselves.
    """

    name: str
    file: str
    code: str
    fault: str
    goldens: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    def groups(self) -> list[list[str]]:
        """What is run: goldens together, further tests together; each must fail by itself."""
        golden = [f"{_GOLDEN}[{case}]" for case in self.goldens]
        return [group for group in (golden, list(self.tests)) if group]

    def place(self, source: Path) -> Path:
        """The file that holds the code; ends the program when that is not clear."""
        having = [path for path in sorted(source.rglob("*.py")) if self.code in path.read_text(encoding="utf-8")]
        if len(having) > 1:
            having = [path for path in having if path.as_posix().endswith(self.file)]
        if len(having) != 1 or having[0].read_text(encoding="utf-8").count(self.code) != 1:
            sys.exit(
                f"{self.name}: src holds its code in {len(having)} places: {self.code}\n"
                "fix: write the code as it is now into tests/mutants/mutants.toml"
            )
        return having[0]


def mutants() -> list[Mutant]:
    """The list."""
    table = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text(encoding="utf-8"))
    found = []
    for name, entry in table.items():
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
        }
        found.append(Mutant(name, **fields))
    return found


def _run(folder: Path, tests: Sequence[str]) -> tuple[int, str]:
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", *tests]
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (folder / "src", folder)))}
    done = subprocess.run(words, cwd=folder, env=os.environ | paths, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main(patterns: Sequence[str]) -> int:
    """Plant the faults one by one."""
    chosen = [each for each in mutants() if any(fnmatch.fnmatch(each.name, pattern) for pattern in patterns)]
    alive = []
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held) / "copy"
        for name in ("src", "tests", "benchmarks"):
            shutil.copytree(_ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(_ROOT / "pyproject.toml", folder)
        places = {each.name: each.place(folder / "src") for each in chosen}
        wanted = sorted({test for each in chosen for group in each.groups() for test in group})
        code, text = _run(folder, wanted)
        if code != _PASSED:
            sys.exit(f"these tests must pass before a fault is planted:\n{text}")
        for each in chosen:
            path = places[each.name]
            right = path.read_text(encoding="utf-8")
            path.write_text(right.replace(each.code, each.fault), encoding="utf-8")
            ends = [_run(folder, group) for group in each.groups()]
            path.write_text(right, encoding="utf-8")
            killed = all(code == _FAILED for code, _ in ends)
            print(f"{'killed' if killed else 'SURVIVED'}: {each.name}", flush=True)
            if not killed:
                alive.append(each.name)
                print("\n".join(text[-2000:] for code, text in ends if code != _FAILED))
    print(f"{len(chosen) - len(alive)} of {len(chosen)} faults noticed")
    return int(bool(alive))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["*"]))
