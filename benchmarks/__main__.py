"""Run benchmarks, each in a process of its own: ``python -m benchmarks [NAME ...] [OPTION ...]``."""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    here = Path(__file__).parent
    names, options = _asked(sys.argv[1:])
    known = sorted([*_modules(here), *_packages(here)])
    if not names and {"-h", "--help"} & set(options):  # else it would run them all
        print(__doc__, *known, sep="\n")
        return 0
    names = names or known
    failed = []
    for name in names:
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *options]
        if subprocess.run(command, cwd=here.parent, check=False).returncode:
            failed.append(name)
    print("missed: " + ", ".join(failed) if failed else "all targets met")
    return 1 if failed else 0


def _asked(words: list[str]) -> tuple[list[str], list[str]]:
    """Names of benchmarks, and what follows the first option, which goes to all of them."""
    first = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    return words[:first], words[first:]


def _modules(folder: Path) -> list[str]:
    return [path.stem for path in folder.glob("[a-z]*.py")]


def _packages(folder: Path) -> list[str]:
    return [path.parent.name for path in folder.glob("[a-z]*/__main__.py")]


if __name__ == "__main__":
    sys.exit(main())
