"""Run `roundoff diagnose` on every planted case: ``python -m benchmarks planted [--seeds N] [--only GLOB]``.

Prints which culprits and causes were found, what was taken for what, and who was accused although all was well.
Leaves with 1 when a target is missed. ``--write-docs`` puts the tables into docs/reference/planted-faults.md.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.planted.answers import Answer, ask
from benchmarks.planted.document import write_page
from benchmarks.planted.journal import Journal
from benchmarks.planted.suite import cases
from benchmarks.planted.tables import TARGETS, confusion, families_table, faults_table, summary


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks planted", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="networks of each family")
    parser.add_argument("--only", default="*", metavar="GLOB", help="names of cases: fault/family/seed")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the files of all cases there")
    parser.add_argument(
        "--journal", type=Path, metavar="FILE", help="keep answers there; those in it are not asked again"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--write-docs", action="store_true", help="write the tables into the documentation")
    args = parser.parse_args()
    if args.list:
        print("\n".join(case.name for case in cases(args.seeds, only=args.only)))
        return 0
    answers: list[Answer] = []
    journal = Journal(args.journal)
    for case in cases(args.seeds, only=args.only):
        if case.name not in journal:
            journal.add(ask(case, keep=args.keep))
        answers.append(journal[case.name])
        _tell(answers[-1])
    for table in (faults_table(answers), families_table(answers), confusion(answers)):
        _print(table)
    if args.write_docs:
        write_page(answers, seeds=args.seeds)
    return 0 if _reached(answers) else 1


def _tell(answer: Answer) -> None:
    """One line for a case that went wrong."""
    if answer.error:
        print(f"{answer.case}: failed: {answer.error}", flush=True)
    elif answer.clean and answer.accused:
        print(f"{answer.case}: clean, but {answer.verdict} {' '.join(answer.said)}", flush=True)
    elif not answer.clean and not all(answer.right):
        pairs = zip(answer.expected, answer.said, answer.found, strict=True)
        said = "; ".join(f"{e}: {s or 'nobody'}{'' if f else ' (missed)'}" for e, s, f in pairs)
        print(f"{answer.case}: {answer.verdict}; {said}", flush=True)


def _print(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    print()
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _reached(answers: Sequence[Answer]) -> bool:
    figures = summary(answers)
    print()
    for name, (good, total) in figures.items():
        print(f"{name}: {good} of {total}" + (f" ({good / total:.1%})" if total else ""))
    found, right, fixed, accused = figures.values()
    met = found[0] >= TARGETS["found"] * found[1] and right[0] >= TARGETS["right"] * right[1]
    return met and fixed[0] == fixed[1] and accused[0] == 0


if __name__ == "__main__":
    sys.exit(main())
