"""Run roundoff on every planted case: ``python -m benchmarks planted [--seeds N] [--only GLOB]``.

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
from benchmarks.planted.suite import Choice, cases
from benchmarks.planted.tables import (
    confusion,
    dumps_table,
    families_table,
    faults_table,
    reached,
    repairs_table,
    summary,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks planted", description=__doc__)
    parser.add_argument(
        "--seeds", type=_seeds, default=[0], metavar="N|A-B", help="so many networks of each family, or which"
    )
    parser.add_argument(
        "--only", default="*", metavar="GLOBS", help="names of cases: fault/family/seed, with commas between"
    )
    parser.add_argument(
        "--part",
        type=_part,
        default=(0, 1),
        metavar="K/N",
        help="one of N parts of all names, by chance; K from 0",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the files of all cases there")
    parser.add_argument(
        "--journal", type=Path, metavar="FILE", help="keep answers there; those in it are not asked again"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--write-docs", action="store_true", help="write the tables into the documentation")
    args = parser.parse_args()
    choice = Choice(args.seeds, args.only, args.part)
    if args.list:
        print("\n".join(case.name for case in cases(choice)))
        return 0
    answers: list[Answer] = []
    journal = Journal(args.journal)
    for case in cases(choice):
        if case.name not in journal:
            journal.add(ask(case, keep=args.keep))
        answers.append(journal[case.name])
        _tell(answers[-1])
    tables = (faults_table(answers), families_table(answers), confusion(answers))
    for table in (*tables, dumps_table(answers, "style"), dumps_table(answers, "way"), repairs_table(answers)):
        _print(table)
    if args.write_docs:
        write_page(answers, choice)
    return 0 if _reached(answers) else 1


def _seeds(text: str) -> list[int]:
    first, dash, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else list(range(int(first)))


def _part(text: str) -> tuple[int, int]:
    which, _, count = text.partition("/")
    return int(which), int(count)


def _tell(answer: Answer) -> None:
    """One line for a case that went wrong."""
    dump = f" [{answer.style}, {answer.way}]" if answer.style else ""
    if answer.good:
        told = " and ".join(answer.good)
        print(f"{answer.case}{dump}: broken ({answer.output_db:.1f} dB), but good for {told}", flush=True)
    if answer.claim and not answer.holds:
        claimed, found = answer.claim
        print(f"{answer.case}: {claimed:.2f} claimed, {found:.2f} on others {answer.unit}", flush=True)
    if answer.error:
        print(f"{answer.case}{dump}: failed: {answer.error}", flush=True)
    elif answer.clean and answer.accused:
        print(f"{answer.case}{dump}: clean, but {answer.verdict} {' '.join(answer.said)}", flush=True)
    elif not answer.clean and not all(answer.right):
        pairs = zip(answer.expected, answer.said, answer.found, strict=True)
        said = "; ".join(f"{e}: {s or 'nobody'}{'' if f else ' (missed)'}" for e, s, f in pairs)
        print(f"{answer.case}{dump}: {answer.verdict}; {said}", flush=True)


def _print(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    print()
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _reached(answers: Sequence[Answer]) -> bool:
    print()
    for name, (good, total) in summary(answers).items():
        print(f"{name}: {good} of {total}" + (f" ({good / total:.1%})" if total else ""))
    missed = reached(answers)
    if missed:
        print("missed: " + "; ".join(missed))
    return not missed


if __name__ == "__main__":
    sys.exit(main())
