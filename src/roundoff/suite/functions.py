"""The commands on suites as functions: run, plan, status, report, gate, submit, gc."""

import json
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from roundoff.api.call import Call, Limits, public, words_in
from roundoff.api.inputs import PathLike, as_path
from roundoff.api.outcome import PageOutcome
from roundoff.core.document import input_file
from roundoff.core.files import check_output_directory, output_directory, write_text
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, nearest
from roundoff.messages.message import english
from roundoff.run.executors import TRIES
from roundoff.run.session import available_threads
from roundoff.suite.fetching import is_url
from roundoff.suite.judging import LAST, GatedUnit, SuiteBaseline, find_baseline, judge_states
from roundoff.suite.matrix import Suite, load_suite
from roundoff.suite.page import gate_page, message_text, plan_page, report_page, run_file, run_page
from roundoff.suite.store import UnitStore
from roundoff.suite.unit import RunLimits, UnitState, estimate, kept_run, look_up, part_of, run_of, run_units

if TYPE_CHECKING:
    from roundoff.pages.blocks import Page


_MARKER = "suite.json"


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """A suite, and what is known of it.

    Attributes:
        suite: The suite.
        states: What became of each unit.
        units: The same as the gate sees it: ranges of one evaluation are one.
        when: The run that was remembered; empty for none.
        baseline: What it was held against; empty for nothing.
        files: What was written.
    """

    suite: Suite
    states: tuple[UnitState, ...]
    units: tuple[GatedUnit, ...]
    when: str = ""
    baseline: str = ""
    files: tuple[Path, ...] = ()

    @property
    def done(self) -> bool:
        """Whether every unit is done."""
        return all(each.done for each in self.units)


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed from a store.

    Attributes:
        runs: Runs of suites.
        units: Keys of units.
        dry: Whether it was only looked for.
    """

    runs: tuple[str, ...]
    units: tuple[str, ...]
    dry: bool


def _opened(
    file: PathLike, store: PathLike | None, only: str | Sequence[str], part: str | None
) -> tuple[Suite, UnitStore, tuple[UnitState, ...]]:
    path = as_path(file, option="The suite")
    patterns = words_in(only, option="--only")
    suite = load_suite(path, store=None if store is None else str(store), only=patterns)
    chosen = part_of(suite.units, part)
    opened = UnitStore(suite.store)
    return suite, opened, tuple(UnitState(unit, "waiting") for unit in chosen)


def _outcome(call: Call, found: SuiteResult, page: "Page", *, good: bool) -> PageOutcome[SuiteResult]:
    read = (input_file("suite", found.suite.file),)
    code = EXIT_OK if good else EXIT_THRESHOLD_MISSED
    return PageOutcome(found, call.document(read), code, shown=page)


@public
def run(
    file: PathLike,
    *,
    store: PathLike | None = None,
    workers: int | None = None,
    dask: str | None = None,
    only: str | Sequence[str] = (),
    part: str | None = None,
    tries: int = TRIES,
    time_limit: float | None = None,
    on_unit: Callable[[UnitState], None] | None = None,
    **options: Unpack[Limits],
) -> PageOutcome[SuiteResult]:
    """Do every unit of a suite that is not done yet.

    Args:
        file: The suite's TOML file.
        store: Where what is done is kept, if not where the file says: a folder, or a URL of fsspec.
        workers: Processes of this machine; as many as cores by default.
        dask: Address of a Dask scheduler; ``local`` to start a cluster here.
        only: Patterns of units, as ``resnet*/ax650/*``.
        part: Only every n-th unit from the i-th on, as ``2/8``.
        tries: So often a unit may lose its worker before it is given up.
        time_limit: Seconds that a unit may take.
        on_unit: Told of each unit that was done or failed.
        options: Who is told of its progress.
    """
    call = Call("suite.run", options, Limits)
    _check_numbers(workers=workers, tries=tries, time_limit=time_limit)
    suite, opened, chosen = _opened(file, store, only, part)
    limits = RunLimits(workers, dask, tries, time_limit)
    units = [each.unit for each in chosen]
    opened.begin()
    states = run_units(units, opened, limits, progress=call.progress, on_state=on_unit)
    when = kept_run(suite, opened, states, whole=part is None and not only)
    judged = judge_states(states, opened)
    found = SuiteResult(suite, states, judged, when=when)
    known = sum(all(state.state == "known" for state in each.states) for each in judged)
    return _outcome(call, found, run_page(suite.name, judged, known=known), good=found.done)


def _check_numbers(*, workers: int | None, tries: int, time_limit: float | None) -> None:
    for option, number in (("--workers", workers), ("--tries", tries), ("--time-limit", time_limit)):
        if number is not None and not number > 0:
            what = english("{option} {number} is not a number of things.", option=option, number=number)
            raise BadInput(what, fix=english("give {option} 1 or more", option=option))


@public
def plan(
    file: PathLike,
    *,
    store: PathLike | None = None,
    workers: int | None = None,
    only: str | Sequence[str] = (),
    part: str | None = None,
) -> PageOutcome[SuiteResult]:
    """Say what a suite comes to: its units, what is done already, and how long the rest will take.

    Args:
        file: The suite's TOML file.
        store: Where what is done is kept, if not where the file says.
        workers: For the estimate; as many as cores by default.
        only: Patterns of units.
        part: Only every n-th unit from the i-th on.
    """
    call = Call("suite.plan", {}, Limits)
    suite, opened, chosen = _opened(file, store, only, part)
    states = tuple(look_up([each.unit for each in chosen], opened))
    expected = estimate(states, opened.runs(suite.name))
    judged = judge_states(states, opened)
    found = SuiteResult(suite, states, judged)
    page = plan_page(suite.name, judged, expected, workers=workers or available_threads(), store=suite.store)
    return _outcome(call, found, page, good=True)


@public
def status(
    file: PathLike, *, store: PathLike | None = None, only: str | Sequence[str] = ()
) -> PageOutcome[SuiteResult]:
    """Say which units of a suite are done, failed or waiting; good when all are done.

    Args:
        file: The suite's TOML file.
        store: Where what is done is kept, if not where the file says.
        only: Patterns of units.
    """
    call = Call("suite.status", {}, Limits)
    suite, opened, chosen = _opened(file, store, only, None)
    states = tuple(look_up([each.unit for each in chosen], opened))
    judged = judge_states(states, opened)
    found = SuiteResult(suite, states, judged)
    expected = estimate(states, opened.runs(suite.name))
    page = plan_page(suite.name, judged, expected, workers=available_threads(), store=suite.store)
    return _outcome(call, found, page, good=found.done)


@public
def gate(
    file: PathLike,
    *,
    baseline: str | None = None,
    store: PathLike | None = None,
    only: str | Sequence[str] = (),
    strict: bool = False,
) -> PageOutcome[SuiteResult]:
    """Let a suite pass, or not: by its goals, and by what units lost against an earlier run.

    Args:
        file: The suite's TOML file.
        baseline: ``last``, the beginning of when a run was, or another store; None for goals alone.
        store: Where what is done is kept, if not where the file says.
        only: Patterns of units.
        strict: Losses above what is allowed fail even where chance is not excluded.
    """
    call = Call("suite.gate", {}, Limits)
    suite, states, judged, against = _judged(file, store, only, baseline, strict=strict)
    found = SuiteResult(suite, states, judged, baseline="" if against is None else against.run.when)
    page = gate_page(suite.name, judged, baseline=found.baseline)
    return _outcome(call, found, page, good=all(each.passed for each in judged))


def _judged(
    file: PathLike, store: PathLike | None, only: str | Sequence[str], baseline: str | None, *, strict: bool
) -> tuple[Suite, tuple[UnitState, ...], tuple[GatedUnit, ...], SuiteBaseline | None]:
    suite, opened, chosen = _opened(file, store, only, None)
    states = tuple(look_up([each.unit for each in chosen], opened))
    against = None if baseline is None else find_baseline(str(baseline), suite, opened, states)
    return suite, states, judge_states(states, opened, baseline=against, strict=strict), against


@public
def report(
    file: PathLike,
    output: PathLike,
    *,
    baseline: str | None = None,
    store: PathLike | None = None,
    only: str | Sequence[str] = (),
    force: bool = False,
) -> PageOutcome[SuiteResult]:
    """Write one page for the zoo, and the report of every run behind it.

    Args:
        file: The suite's TOML file.
        output: The folder to be written.
        baseline: As for `gate`.
        store: Where what is done is kept, if not where the file says.
        only: Patterns of units.
        force: Replace an earlier report.
    """
    from roundoff.api.runs import report_html
    from roundoff.core.document import json_text
    from roundoff.messages.catalogue import current_language
    from roundoff.pages.html.render import html_report
    from roundoff.pages.text_files import run_tables
    from roundoff.report.junit import suite_junit

    call = Call("suite.report", {}, Limits)
    folder = as_path(output, option="-o")
    check_output_directory(folder, marker=_MARKER, force=force)
    suite, states, judged, against = _judged(file, store, only, baseline, strict=False)
    opened, when = UnitStore(suite.store), "" if against is None else against.run.when
    page = report_page(
        suite.name, judged, opened.history(suite.name), baseline=when, links=str(run_file("{}").as_posix())
    )
    files: dict[str, str] = {
        _MARKER: json_text({"suite": suite.name, "units": [each.content() for each in states]}),
        "index.html": html_report(
            (page,), title=page.title.within(current_language()), language=current_language()
        ),
        "junit.xml": suite_junit(suite.name, _cases(judged)),
        **run_tables((page,)),
    }
    for each in judged:
        document = opened.get(each.unit.key) if each.done else None
        ran = None if document is None else run_of(document, each.label)
        if ran is not None:
            files[run_file(each.unit.key).as_posix()] = report_html(ran, title=each.label)
    with output_directory(folder, marker=_MARKER, force=force) as staged:
        for name, text in files.items():
            write_text(staged / name, text)
    found = SuiteResult(suite, states, judged, baseline=when, files=tuple(folder / name for name in files))
    return _outcome(call, found, page, good=all(each.passed for each in judged))


def _cases(judged: Sequence[GatedUnit]) -> list[tuple[str, str, tuple[str, ...], str]]:
    """Units as test cases: command, label, what is wrong, what was measured."""
    found = []
    for each in judged:
        wrong = tuple(message_text(said) for said in (*each.failures, *each.doubts))
        verdict = each.figures.get("verdict") or ["", ""]
        found.append((each.unit.command, each.label, wrong, str(verdict[0])))
    return found


def junit_text(found: SuiteResult) -> str:
    """A suite as JUnit XML."""
    from roundoff.report.junit import suite_junit

    return suite_junit(found.suite.name, _cases(found.units))


@public
def submit(
    file: PathLike,
    *,
    format: str = "xargs",
    jobs: int = 16,
    store: PathLike | None = None,
    only: str | Sequence[str] = (),
) -> str:
    """Commands that do a suite as jobs of Slurm, Kubernetes or xargs.

    Args:
        file: The suite's TOML file, where jobs see it.
        format: ``xargs``, ``slurm`` or ``kubernetes``.
        jobs: How many.
        store: Where what is done is kept, if not where the file says.
        only: Patterns of units.

    Returns:
        The text.
    """
    suite, _, _ = _opened(file, store, only, None)
    patterns = words_in(only, option="--only")
    more = ("--only", ",".join(patterns)) if patterns else ()
    return job_commands(suite, form=format, jobs=jobs, file=as_path(file, option="The suite"), options=more)


@public
def gc(
    store: PathLike, *, older_than: float | None = None, suite: str | None = None, dry_run: bool = False
) -> Collected:
    """Remove from a store what nobody asks for any more: by age, by suite, or both.

    Args:
        store: The folder or URL.
        older_than: Seconds: runs that are older go, and units that no other run asks for.
        suite: Only runs of this suite.
        dry_run: Only tell.
    """
    if older_than is None and suite is None:
        what = english("Neither an age nor a suite was given: nothing is too old.")
        raise BadInput(what, fix=english("add --older-than 30d, or --suite NAME"))
    opened = UnitStore(str(store))
    if opened.folder is not None and not opened.folder.exists():
        what = english("The store {url} does not exist.", url=store)
        raise BadInput(what, fix=english("check the path"))
    runs, units = opened.collect(older_s=older_than, suite=suite, dry=dry_run)
    return Collected(tuple(runs), tuple(units), dry_run)


__all__ = ["LAST", "gate", "gc", "plan", "report", "run", "status", "submit"]


FORMATS = ("xargs", "slurm", "kubernetes")
"""What jobs are written for."""

_IMAGE = "roundoff:latest"
# Names of jobs are parts of names of hosts.
_NAME_LENGTH = 52


def job_commands(suite: Suite, *, form: str, jobs: int, file: Path, options: tuple[str, ...] = ()) -> str:
    """The commands that do a suite in so many jobs.

    Args:
        suite: What to do.
        form: For whom; see `FORMATS`.
        jobs: How many.
        file: The suite's file as jobs see it.
        options: Further words for each.

    Raises:
        BadInput: There is no such form, or no such number.
    """
    if form not in FORMATS:
        raise BadInput(english("There are no jobs for {form!r}.", form=form), fix=nearest(form, FORMATS))
    if jobs < 1:
        raise BadInput(english("{jobs} jobs do nothing.", jobs=jobs), fix=english("give 1 or more"))
    jobs = min(jobs, len(suite.units))
    # Jobs begin in other folders.
    store = suite.store if is_url(suite.store) else str(Path(suite.store).absolute())
    words = ["roundoff", "suite", "run", str(file.absolute()), "--store", store, "--workers", "1", *options]
    if form == "xargs":
        lines = [shlex.join([*words, "--part", f"{number}/{jobs}"]) for number in range(1, jobs + 1)]
        return "\n".join(lines) + "\n"
    command = shlex.join(words)
    if form == "slurm":
        return _SLURM.format(name=_plain(suite.name), jobs=jobs, command=command)
    part = f'exec {command} --part "$((JOB_COMPLETION_INDEX + 1))/{jobs}"'
    # A string of JSON is one of YAML.
    about = {"name": _plain(suite.name).lower(), "jobs": jobs, "image": _IMAGE}
    return _KUBERNETES.format(**about, command=json.dumps(part), mounts=_mounts(suite, file, store))


def _mounts(suite: Suite, file: Path, store: str) -> str:
    """The folders that jobs must see where they are here: the suite's, those of its files, and the store."""
    named = [str(file), *(path for unit in suite.units for path, mark in unit.places if mark)]
    folders = {Path(os.path.normpath(Path(each).absolute())).parent for each in named}
    folders |= set() if is_url(store) else {Path(os.path.normpath(store))}
    top = sorted(each for each in folders if not folders & set(each.parents))
    rows = [_MOUNT.format(path=json.dumps(str(each)), below=json.dumps(str(each).lstrip("/"))) for each in top]
    return "".join(rows)


def _plain(name: str) -> str:
    """A name that schedulers take."""
    plain = "".join(each if each.isascii() and each.isalnum() else "-" for each in name)
    return plain[:_NAME_LENGTH].strip("-") or "suite"


_SLURM = """\
#!/bin/sh
#SBATCH --job-name=roundoff-{name}
#SBATCH --array=1-{jobs}
#SBATCH --cpus-per-task=1
exec {command} --part "$SLURM_ARRAY_TASK_ID/{jobs}"
"""

_MOUNT = """
            - {{name: suite, mountPath: {path}, subPath: {below}}}"""

_KUBERNETES = """\
# The claim 'roundoff' is a disk that holds these folders, under the same names; 'kubectl get pvc' shows yours.
apiVersion: batch/v1
kind: Job
metadata:
  name: roundoff-{name}
spec:
  completions: {jobs}
  parallelism: {jobs}
  completionMode: Indexed
  backoffLimit: {jobs}
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: roundoff
          image: {image}
          command: [/bin/sh, -c, {command}]
          resources:
            requests: {{cpu: "1"}}
          volumeMounts:{mounts}
      volumes:
        - name: suite
          persistentVolumeClaim: {{claimName: roundoff}}
"""
