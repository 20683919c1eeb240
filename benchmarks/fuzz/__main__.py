"""Fuzzing with structure: every parser of files that others write, and whole commands on mutated networks.

``python -m benchmarks fuzz [--inputs N] [--seed S] [--parsers NAME ...] [--tally FILE] [--page FILE]``. An input
begins as a valid document and is changed where its grammar has places: values are replaced by hostile ones,
parts repeated, nested, swapped or dropped, fields of lengths and types altered, and only sometimes bytes. It
must be read, or refused with an error of ours, within the time; anything else is a failure, which is kept in
``tests/corpus`` and from then on tried by the tests. With ``--tally`` a campaign that was broken off goes on
where it was; ``--page`` writes the table of docs/reference/fuzzing.md.
"""

import argparse
import os
import sys
import tempfile
import warnings
from pathlib import Path

from benchmarks.fuzz.campaign import Tally
from benchmarks.fuzz.parsers import parsers

INPUTS = 50_000


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inputs", type=int, default=INPUTS, help="at least so many over all parsers")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--parsers", nargs="*", default=[])
    options.add_argument("--tally", type=Path, help="where the counts are kept")
    options.add_argument("--page", type=Path)
    given = options.parse_args()
    os.environ["ROUNDOFF_TRACEBACK"] = "1"  # what escapes a command is a failure here, and so is a warning
    warnings.simplefilter("error")
    tally = Tally(given.tally, given.seed)
    memory = Path("/dev/shm")  # noqa: S108 - a folder that is made there
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        known = parsers(Path(name))
        chosen = [
            each for each in known if not given.parsers or any(asked in each.name for asked in given.parsers)
        ]
        tally.rows = {each.name: tally.rows[each.name] for each in known if each.name in tally.rows}
        while tally.total < given.inputs:
            for parser in chosen:
                tally.piece(parser, Path(name))
    for title, row in tally.rows.items():
        print(f"{title:28} {row.inputs:9,} inputs, {row.failures} failures, {row.seconds:.0f} CPU s", flush=True)
    if given.page is not None:
        write_page(given.page, tally, seed=given.seed)
    return 1 if any(row.failures for row in tally.rows.values()) else 0


def write_page(path: Path, tally: Tally, *, seed: int) -> None:
    """Write the table of all parsers."""
    lines = [f"| {name} | {row.inputs:,} | {row.failures} |" for name, row in tally.rows.items()]
    wrong = sum(row.failures for row in tally.rows.values())
    text = _PAGE.format(seed=seed, total=f"{tally.total:,}", wrong=wrong, rows="\n".join(lines))
    path.write_text(text, encoding="utf-8")


_PAGE = """# Fuzzing

Every parser of files that others write, with inputs that begin as a valid document and are changed where its
grammar has places: values replaced by hostile ones, parts repeated, nested, swapped or dropped, fields of lengths
and types altered. An input must be read, or refused with an error and its fix, within 10 s of the
processor; one text in 500 is made 300 kB long, where what takes the square of it would need minutes. What fails is
kept in `tests/corpus`, and the tests try it, and new inputs for each parser, from then on. A test finds every
place in the source that reads such a file, and demands that the documents below reach it.

`python -m benchmarks fuzz --inputs N --seed {seed} --tally FILE --page docs/reference/fuzzing.md` makes this page;
with the same file it goes on where it was broken off:

| parser | inputs | failures |
|---|---|---|
{rows}
| all | {total} | {wrong} |
"""


if __name__ == "__main__":
    sys.exit(main())
