"""Many models on many chips: the sub-commands of ``roundoff suite``."""

import argparse
import re
from typing import TYPE_CHECKING, Any

from roundoff.cli.options import (
    DASK,
    Command,
    Option,
    command,
    group,
    opt,
    positive,
    refused,
    subcommand,
    vendor_options,
)
from roundoff.cli.parser import CommandParser
from roundoff.cli.results import FORCE, print_page
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, BadInput
from roundoff.messages.catalogue import translate
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.api.outcome import PageOutcome
    from roundoff.suite.functions import SuiteResult
    from roundoff.suite.unit import UnitState

_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_FILE = opt("file FILE", "the suite: a TOML file of models, chips, commands and goals")
_STORE = opt("--store DIR|URL", "where what is done is kept (default: as the file says)")
_ONLY = opt("--only PATTERN,...", "only units whose names match, as 'resnet*/ax650/*'")
_PART = opt("--part I/N", "only every N-th unit, from the I-th on: a share of several jobs")
_BASELINE = opt(
    "--baseline RUN|STORE", "'last', when a run was, or another store: what units may not lose against"
)
_JSON = opt("--json", "print what became of each unit as JSON")


def _age(text: str) -> float:
    """An age, like ``12h``, ``30d`` or ``8w``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", text.strip().lower())
    if found is None:
        raise refused("{text!r} is not an age; write it as 12h, 30d or 8w", text=text)
    return float(found[1]) * _SECONDS[found[2]]


def _given(args: argparse.Namespace, *leave_out: str) -> dict[str, Any]:
    told = {each.name for each in _SUBCOMMANDS[args.sub].options if isinstance(each, Option)}
    for part in _SUBCOMMANDS[args.sub].options:
        told |= {each.name for each in getattr(part, "options", ())}
    found = {name: getattr(args, name) for name in told if name not in (*leave_out, "json")}
    return {name: value for name, value in found.items() if value is not None}


def _show(args: argparse.Namespace, terminal: Terminal, outcome: "PageOutcome[SuiteResult]") -> int:
    if args.json:
        from roundoff.core.document import json_text

        found = outcome.result
        content = {"suite": found.suite.name, "store": found.suite.store, "run": found.when}
        units = [each.content() for each in found.states]
        terminal.text(json_text({**content, "exit_code": outcome.exit_code, "units": units}))
    else:
        print_page(terminal, outcome.page)
    return outcome.exit_code


@command(
    _FILE,
    _STORE,
    _ONLY,
    _PART,
    _JSON,
    group(
        "workers",
        opt("--workers N", "processes of this machine (default: one per core)", type=positive),
        DASK,
        opt("--tries N", "so often a unit may lose its worker before it is given up (default: 3)", type=positive),
        opt("--time-limit TIME", "end units that take longer, as 90s, 5m or 1h"),
    ),
)
def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Do every unit of a suite that is not done yet.

    A unit is a command on a model for a chip. It is known by the hash of all that
    it depends on: the content of its files, its options, the versions; what the
    store has is not done again. Exit code 0 when every unit is done, whatever its
    verdict; 1 when some failed.
    """
    from roundoff.suite.functions import run

    def told(state: "UnitState") -> None:
        if state.state == "failed":
            terminal.note(translate("suite.not_done", why=state.unit.label))

    return _show(args, terminal, run(**_given(args), on_unit=told, progress=terminal))


@command(
    _FILE, _STORE, _ONLY, _PART, _JSON, opt("--workers N", "for the estimate (default: cores)", type=positive)
)
def _plan(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show the units of a suite, what is done already, and how long the rest takes."""
    from roundoff.suite.functions import plan

    return _show(args, terminal, plan(**_given(args)))


@command(_FILE, _STORE, _ONLY, _JSON)
def _status(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show which units are done, failed or waiting; exit code 0 when all are done."""
    from roundoff.suite.functions import status

    return _show(args, terminal, status(**_given(args)))


@command(
    _FILE,
    _STORE,
    _ONLY,
    _BASELINE,
    _JSON,
    opt("-o --output DIR", "where index.html, junit.xml, suite.csv and the runs go", required=True),
    FORCE,
)
def _report(args: argparse.Namespace, terminal: Terminal) -> int:
    """Write one page for the zoo: a table, the worst, trends, and a link to each run."""
    from roundoff.suite.functions import report

    outcome = report(**_given(args))
    code = _show(args, terminal, outcome)
    terminal.written(outcome.result.files[1:2])
    return code


@command(
    _FILE,
    _STORE,
    _ONLY,
    _BASELINE,
    _JSON,
    opt("--strict", "losses over budget fail even where chance is not excluded"),
    opt("--junit FILE", "also write JUnit XML"),
)
def _gate(args: argparse.Namespace, terminal: Terminal) -> int:
    """Let a suite pass, or not: by its goals, and by what it lost against a run before.

    Losses are tested on the same samples, and chance is excluded over all units
    together. Exit code 0 when every unit is done and passes, 1 when one does not
    or cannot be judged, 2 for bad input.
    """
    from roundoff.core.files import write_text
    from roundoff.suite.functions import gate, junit_text

    outcome = gate(**_given(args, "junit"))
    code = _show(args, terminal, outcome)
    if args.junit is not None:
        write_text(args.junit, junit_text(outcome.result))
        terminal.written([args.junit])
    return code


@command(
    _FILE,
    _STORE,
    _ONLY,
    opt("--print", "print the commands; starting them is the scheduler's own affair", dest="printed"),
    opt("--for", "whose jobs (default: xargs)", choices=("xargs", "slurm", "kubernetes"), dest="format"),
    opt("--jobs N", "how many (default: 16)", type=positive),
)
def _submit(args: argparse.Namespace, terminal: Terminal) -> int:
    r"""Write self-contained commands for Slurm, Kubernetes or xargs.

      roundoff suite submit suite.toml --print --jobs 8 | xargs -d '\n' -P 8 -I{} sh -c '{}'
      roundoff suite submit suite.toml --print --for slurm > job.sh; sbatch job.sh

    Every job does its share, and finds out from the store what is done.
    """
    from roundoff.suite.functions import submit

    if not args.printed:
        what = english("Jobs are not started from here.")
        raise BadInput(what, fix=english("add --print, and give what is printed to xargs, sbatch or kubectl"))
    terminal.text(submit(**_given(args, "printed")).rstrip("\n"))
    return EXIT_OK


@command(
    opt("store DIR|URL", "the store"),
    opt("--older-than AGE", "runs that are older go, as 30d, 8w or 12h", type=_age),
    opt("--suite NAME", "only runs of this suite"),
    opt("--dry-run", "only tell"),
)
def _gc(args: argparse.Namespace, terminal: Terminal) -> int:
    """Remove runs from a store, and units that no run which is left asks for."""
    from roundoff.suite.functions import gc

    found = gc(**_given(args))
    told = english(
        "{runs} {runs:run|runs} and {units} {units:unit|units} removed",
        runs=len(found.runs),
        units=len(found.units),
    )
    if found.dry:
        told = english(
            "{runs} {runs:run|runs} and {units} {units:unit|units} would be removed",
            runs=len(found.runs),
            units=len(found.units),
        )
    terminal.text(told)
    return EXIT_OK


_SUBCOMMANDS: dict[str, Command] = {
    "run": _run,
    "plan": _plan,
    "status": _status,
    "report": _report,
    "gate": _gate,
    "submit": _submit,
    "gc": _gc,
}


@command(vendor_options(_SUBCOMMANDS, "its options"))
def suite(args: argparse.Namespace, terminal: Terminal) -> int:
    """Many models on many chips: units of work, done once, on one machine or many.

      roundoff suite plan suite.toml
      roundoff suite run suite.toml [--workers N | --dask ADDRESS]
      roundoff suite status suite.toml
      roundoff suite report suite.toml -o DIR
      roundoff suite gate suite.toml --baseline last --junit FILE
      roundoff suite submit suite.toml --print --for slurm
      roundoff suite gc STORE --older-than 30d

    'roundoff suite SUB -h' lists options.
    """
    chosen = subcommand(args.sub, _SUBCOMMANDS)
    found = CommandParser(prog=f"roundoff suite {args.sub}").taught(chosen, args.rest)
    found.sub = args.sub
    return int(found.execute(found, terminal))
