"""Run every benchmark of this folder in a process of its own: ``python -m benchmarks [NAME ...]``."""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    here = Path(__file__).parent
    names = sys.argv[1:] or sorted(path.stem for path in here.glob("[a-z]*.py"))
    failed = []
    for name in names:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=here.parent, check=False).returncode:
            failed.append(name)
    print("missed: " + ", ".join(failed) if failed else "all targets met")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
