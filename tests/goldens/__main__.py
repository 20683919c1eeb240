"""``python -m tests.goldens --diff`` shows what moved, ``--update`` takes it over; a pattern chooses cases."""

import argparse
import fnmatch
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.goldens.running import Case, Stage, cases
from tests.goldens.values import differences, dumps

# Differences of one case that are shown.
_SHOWN = 20


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.goldens", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--update", action="store_true", help="write what commands give now; each runs twice")
    action.add_argument("--diff", action="store_true", help="show what differs from what is kept, field by field")
    action.add_argument("--list", action="store_true", help="list cases")
    parser.add_argument("pattern", nargs="*", default=["*"], help="cases, as 'layers*' (default: all)")
    parser.add_argument("--times", action="store_true", help="tell the seconds of each case")
    return parser.parse_args()


def main() -> int:
    """Update or compare; 1 when something differs, or is not the same twice."""
    asked = _arguments()
    chosen = [case for name, case in cases().items() if any(fnmatch.fnmatch(name, each) for each in asked.pattern)]
    if not chosen:
        sys.exit(f"no case is called {asked.pattern}")
    moved = 0
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        for case in chosen:
            began = time.perf_counter()
            if asked.list or case.missing:
                print(f"{case.name}: {case.command if asked.list else f'skipped, no ../shared/{case.missing}'}")
                continue
            found = _update(stage, case) if asked.update else _diff(stage, case)
            moved += bool(found)
            for line in found[:_SHOWN]:
                print(f"{case.name}{line}")
            if len(found) > _SHOWN:
                print(f"{case.name}: and {len(found) - _SHOWN} more")
            if asked.times:
                print(f"{case.name}: {time.perf_counter() - began:.1f} s")
    print(f"{moved} of {len(chosen)} cases {'could not be kept' if asked.update else 'moved'}")
    return int(moved > 0)


def _update(stage: Stage, case: Case) -> list[str]:
    found, again = stage.observe(case), stage.observe(case)
    unstable = [f"{line} (not the same twice)" for line in differences(found, again)]
    if not unstable:
        case.path.parent.mkdir(exist_ok=True)
        case.path.write_text(dumps(found) + "\n", encoding="utf-8")
    return unstable


def _diff(stage: Stage, case: Case) -> list[str]:
    if not case.path.exists():
        return [": nothing is kept yet"]
    return list(differences(json.loads(case.path.read_text(encoding="utf-8")), stage.observe(case)))


if __name__ == "__main__":
    sys.exit(main())
