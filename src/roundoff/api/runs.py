"""A run as a file for people or for other programs: HTML, Markdown, CSV, JSON, JUnit, Netron, Model Explorer."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Unpack

from roundoff.api.call import Call, Limits, public
from roundoff.api.inputs import PathLike, as_path, describe_value, is_path
from roundoff.api.outcome import Outcome, PageOutcome
from roundoff.core.document import bytes_input, input_file
from roundoff.core.files import begins, check_output_directory, check_output_file, write_bytes, write_text
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, nearest
from roundoff.messages.catalogue import current_language, translate
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.case.bundle import Bundle
    from roundoff.case.reproduce import Reproduction
    from roundoff.core.document import InputFile, RunDocument
    from roundoff.messages.message import Message
    from roundoff.pages.blocks import Page
    from roundoff.studies.run_diff.result import RunDiff


FORMATS = ("html", "md", "csv", "json", "junit", "netron", "model-explorer")

HTML_START = b"<!doctype html>"
"""By this an earlier report is known, and may be replaced."""

# What an ending stands for: the first when no format is given, the others only with it.
_ENDINGS: Mapping[str, tuple[str, ...]] = {
    ".html": ("html",),
    ".htm": ("html",),
    ".md": ("md",),
    ".markdown": ("md",),
    ".json": ("json", "model-explorer"),
    ".xml": ("junit",),
    ".onnx": ("netron",),
    "": ("csv",),
}
# By these an earlier report of ours is known, and may be replaced with --force.
_STARTS = {"html": HTML_START, "md": b"# ", "json": b"{", "junit": b"<?xml", "model-explorer": b"{"}


def report_title(document: "RunDocument") -> str:
    """What a report is called: the command, and the model or the sides it was about."""
    command = " ".join(document.command[: 2 if document.command[0] == "roundoff" else 1])
    about = [Path(each.path).name for each in document.inputs if each.role in ("model", "reference", "candidate")]
    return f"{command}: {' and '.join(about)}" if about else command


def report_html(document: "RunDocument", pages: "Sequence[Page] | None" = None, *, title: str = "") -> str:
    """A run as one file that opens in any browser.

    Args:
        document: The run.
        pages: What is shown; all pages of the document when None.
        title: Its heading; the command and what it was about when empty.
    """
    from roundoff.messages.catalogue import current_language
    from roundoff.pages.html.render import html_report
    from roundoff.report.pages import all_pages

    shown = all_pages(document) if pages is None else pages
    return html_report(shown, title=title or report_title(document), language=current_language())


def chosen_format(path: Path, asked: str | None) -> str:
    """The format that was asked for, or that the ending of the file stands for.

    Raises:
        BadInput: Nothing is written with such an ending, or it stands for another format than was asked for.
    """
    if asked is not None and asked not in FORMATS:
        raise BadInput(english("There is no report format {asked!r}.", asked=asked), fix=nearest(asked, FORMATS))
    # Folders may have dots in their names: what is no known ending says nothing.
    known = _ENDINGS.get(path.suffix.lower())
    if asked is None:
        if known is None:
            fix = english("end it in {filter}, or say --format", filter=", ".join(filter(None, _ENDINGS)))
            raise BadInput("-o {path}: no report ends in {suffix}.", fix=fix, path=path, suffix=path.suffix)
        return known[0]
    if known is not None and path.suffix and asked not in known:
        fix = english("leave out --format, or end the file in {usual_ending}", usual_ending=_usual_ending(asked))
        raise BadInput(
            english(
                "-o {path} ends as {known} does, and --format is {asked}.", path=path, known=known[0], asked=asked
            ),
            fix=fix,
        )
    return asked


def _usual_ending(chosen: str) -> str:
    found = next(ending for ending, formats in _ENDINGS.items() if chosen in formats)
    return found or english("nothing: it is a folder")


class ReportFile:
    """A report that is going to be written.

    Args:
        path: The file; a folder for CSV.
        form: Its format; by the ending when None.
        title: Its heading.
        force: Replace an earlier report.

    Raises:
        BadInput: Nothing can be written there.
    """

    def __init__(self, path: Path, form: str | None = None, *, title: str = "", force: bool = False) -> None:
        from roundoff.core.document import DOCUMENT_NAME
        from roundoff.graph.nodes import OVERLAY_START

        self.path, self.title, self.force = path, title, force
        self.form = chosen_format(path, form)
        if self.form == "csv":
            check_output_directory(path, marker=DOCUMENT_NAME, force=force)
            return
        start = OVERLAY_START if self.form == "netron" else _STARTS[self.form]
        if not (force and begins(path, start)):
            check_output_file(path, force=False, option="-o")

    def write(
        self, document: "RunDocument", pages: "Sequence[Page] | None" = None, *, origin: str = "The run"
    ) -> tuple[Path, ...]:
        """Write it; the files that were written.

        Args:
            document: The run.
            pages: What is shown; all pages of the document when None.
            origin: What it is called, for messages.

        Raises:
            BadInput: The run has nothing that such a report could show.
        """
        from roundoff.report.pages import all_pages, write_run

        shown = all_pages(document) if pages is None else pages
        if self.form == "csv":
            return write_run(document, self.path, force=self.force, pictures=_more_tables(document, shown))
        if self.form == "netron":
            write_bytes(self.path, _annotated(document, shown, origin))
        else:
            write_text(self.path, self._text(document, shown, origin))
        return (self.path,)

    def _text(self, document: "RunDocument", pages: "Sequence[Page]", origin: str) -> str:
        from roundoff.core.document import to_json
        from roundoff.messages.catalogue import current_language
        from roundoff.pages.text_files import markdown_report
        from roundoff.report.junit import document_junit
        from roundoff.report.pages import model_explorer_overlay

        if self.form == "json":
            return to_json(document)
        if self.form == "junit":
            return _found(
                document_junit(document), english("{origin} has nothing that passes or fails.", origin=origin)
            )
        if self.form == "model-explorer":
            return _found(
                model_explorer_overlay(document), english("{origin} has no number for each node.", origin=origin)
            )
        if self.form == "html":
            return report_html(document, pages, title=self.title)
        title = self.title or report_title(document)
        return markdown_report(pages, title=title, language=current_language())


def _found(text: str | None, missing: str) -> str:
    if text is None:
        raise BadInput(missing, fix=english("choose another --format, or give a run of 'layers' or 'compare'"))
    return text


def _more_tables(document: "RunDocument", pages: "Sequence[Page]") -> dict[str, bytes]:
    """The tables of the report that no command writes by itself."""
    from roundoff.messages.catalogue import current_language
    from roundoff.pages.text_files import page_tables
    from roundoff.report.pages import run_files

    found = page_tables(pages, run_files(document), language=current_language())
    return {name: text.encode("utf-8", "surrogatepass") for name, text in found.items()}


def _annotated(document: "RunDocument", pages: "Sequence[Page]", origin: str) -> bytes:
    from roundoff.graph.nodes import annotated_model
    from roundoff.messages.catalogue import current_language
    from roundoff.report.pages import node_facts

    if document.network is None:
        what = english("{origin} knows no network, so there is nothing for Netron to draw.", origin=origin)
        raise BadInput(what, fix=english("choose another --format, or give a run that read a float model"))
    return annotated_model(document.network, node_facts(pages, language=current_language()))


# What is done with finished runs, as functions: diff, gate, report, explain, serve.

RunLike: TypeAlias = Any
"""A run directory, its ``run.json``, a run document, or what a public function gave."""


def _opened(run: RunLike) -> "tuple[str, RunDocument]":
    """What a run is called, and its document.

    Raises:
        BadInput: It is no run.
    """
    from roundoff.core.document import RunDocument, load_document

    if isinstance(run, Outcome):
        return "(outcome)", run.document
    if isinstance(run, RunDocument):
        return "(document)", run
    if is_path(run):
        return str(run), load_document(Path(run))
    raise BadInput(
        english("A run is {said_of}.", said_of=describe_value(run)),
        fix=english("give a run directory, its run.json, or what a function gave"),
    )


def _origin(role: str, run: RunLike, document: "RunDocument") -> "InputFile":
    from roundoff.core.document import DOCUMENT_NAME, to_json

    if not is_path(run):
        return bytes_input(role, "(run)", to_json(document).encode("utf-8", "surrogatepass"))
    path = Path(run)
    return input_file(role, path / DOCUMENT_NAME if path.is_dir() else path)


@public
def diff(
    before: RunLike, after: RunLike, *, floor: float | str | None = None, paired: bool = False
) -> "Outcome[RunDiff]":
    """Compare two runs: which nodes got better or worse, and can it be chance?

    Args:
        before: The run before.
        after: The run after.
        floor: Smaller changes are none; in decibels.
        paired: Samples of one name are the same ones, although their files differ.
    """
    call = Call("diff", {}, Limits)
    return _compared(call, before, after, floor=floor, paired=paired)


def _compared(
    call: Call,
    before: RunLike,
    after: RunLike,
    *,
    floor: float | str | None,
    paired: bool,
    judge: "Callable[[RunDocument, RunDocument, RunDiff], RunDiff] | None" = None,
) -> "Outcome[RunDiff]":
    from roundoff.studies.run_diff.study import FLOOR_DB, diff_runs

    least = _decibels("--floor", floor)
    old, new = _opened(before), _opened(after)
    found = diff_runs(old, new, floor_db=FLOOR_DB if least is None else least, paired=paired)
    if judge is not None:
        found = judge(old[1], new[1], found)
    read = (_origin("before", before, old[1]), _origin("after", after, new[1]))
    code = EXIT_OK if found.gate is None or found.gate.passed else EXIT_THRESHOLD_MISSED
    return Outcome(found, call.document(read, new[1].network, diff=found), code)


def _decibels(option: str, given: float | str | None) -> float | None:
    from roundoff.studies.run_diff.gate import decibels

    if given is None:
        return None
    try:
        found = decibels(str(given))
    except ValueError:
        found = -1.0
    if found < 0:
        raise BadInput(
            english("{option} {given!r} are no decibels.", option=option, given=given),
            fix=english("write them as 1 or 0.5dB"),
        )
    return found


@public
def gate(
    run: RunLike,
    baseline: RunLike,
    *,
    max_regression: float | str | None = None,
    budget: PathLike | None = None,
    metric: str | Sequence[str] = (),
    scores: PathLike | None = None,
    baseline_scores: PathLike | None = None,
    strict: bool = False,
    floor: float | str | None = None,
    paired: bool = False,
) -> "Outcome[RunDiff]":
    """Let a run pass, or not: has any node lost more against a baseline than it may?

    Args:
        run: The run.
        baseline: The run it is held against.
        max_regression: Loss that is allowed, in decibels.
        budget: TOML or JSON: what nodes may lose, or must reach, by pattern.
        metric: What metrics may lose, as ``top-1 accuracy: -0.5%``; 1 % where nothing is said.
        scores: A CSV of scores from elsewhere, such as a board: a column ``sample``, then one for each metric.
        baseline_scores: The same of the baseline.
        strict: Losses over budget fail even where chance is not excluded.
        floor: Smaller changes are none; in decibels.
        paired: Samples of one name are the same ones, although their files differ.
    """
    from roundoff.studies.run_diff.gate import (
        Budgets,
        GateRules,
        gate_runs,
        metric_budget,
        read_budgets,
        read_scores,
    )

    call = Call("gate", {}, Limits)
    budgets = Budgets() if budget is None else read_budgets(as_path(budget, option="--budget"))
    most = _decibels("--max-regression", max_regression)
    allowed = [metric_budget(each) for each in ([metric] if isinstance(metric, str) else metric)]
    if (scores is None) != (baseline_scores is None):
        what = english("Scores of one side were given, and none of the other.")
        raise BadInput(what, fix=english("give both --scores and --baseline-scores"))
    given = [
        () if path is None else read_scores(as_path(path, option=option))
        for option, path in (("--baseline-scores", baseline_scores), ("--scores", scores))
    ]

    rules = GateRules(budgets, most, tuple(allowed), strict)

    def judge(before: "RunDocument", after: "RunDocument", found: "RunDiff") -> "RunDiff":
        return gate_runs(before, after, found, rules, more=(given[0], given[1]))

    return _compared(call, baseline, run, floor=floor, paired=paired, judge=judge)


@public
def report(
    run: RunLike, file: PathLike, *, format: str | None = None, title: str = "", force: bool = False
) -> tuple[Path, ...]:
    """Turn a run into a report: one HTML file that opens anywhere, or another format.

    Args:
        run: The run.
        file: Where it goes; a folder for CSV.
        format: Form of the report; by the ending of the file when None.
        title: Heading of the report.
        force: Replace an earlier report.

    Returns:
        The files that were written.
    """
    target = ReportFile(as_path(file, option="The report"), format, title=title, force=force)
    called, document = _opened(run)
    return target.write(document, origin=called)


@public
def explain(name: str | int, run: RunLike | None = None) -> str:
    """Explain in one paragraph a node, finding, metric, verdict, cause or column.

    Args:
        name: What to explain.
        run: With it nodes and findings are explained with the numbers of that run.
    """
    from roundoff.measure.metrics import all_metrics, get_metric, judging, mean_of
    from roundoff.messages.message import escape_control
    from roundoff.report.explain import explain as explain_name

    document = None if run is None else _opened(run)[1]
    metrics = (*all_metrics(), *(get_metric(mean_of(each)) for each in judging()))
    try:
        text = explain_name(str(name), document, metrics=metrics)
    except BadInput:
        told = _chip_or_tool(str(name))
        if told is None:
            raise
        text = told
    return escape_control(text, newlines=True)


def _chip_or_tool(name: str) -> str | None:
    """What is known of a chip or a tool of a vendor by its name; None of anything else."""
    from roundoff.quantize.targets import load_target
    from roundoff.vendors.dialects import DIALECTS

    if "/" in name or name.endswith(".toml"):
        return None
    try:
        target = load_target(name)
    except BadInput:
        if name not in DIALECTS:
            return None
        return translate("explain_text.tool", name=name)
    said = target.description_zh if current_language() == "zh" else target.description
    return translate("explain_text.chip", name=target.name, text=(said or target.description).rstrip(".\u3002"))


@public
def serve(folder: PathLike, *, port: int = 0, announce: Callable[[str], object] = print) -> None:
    """Let a browser on this machine look at the runs of a folder, until Ctrl-C.

    Args:
        folder: The folder with runs.
        port: Where to listen; any free one when 0.
        announce: Told the address, once it can be opened.

    Raises:
        BadInput: It is no folder, or the port cannot be had.
    """
    from roundoff.report.server import make_server
    from roundoff.studies.run_diff.study import diff_runs

    path = as_path(folder, option="folder")
    if not path.is_dir():
        raise BadInput(
            english("{folder} is not a folder.", folder=path), fix=english("give the folder that your runs are in")
        )
    server, address = make_server(path, differ=diff_runs, port=port, language=current_language())
    with server:
        try:
            announce(address)
            server.serve_forever()
        except KeyboardInterrupt:
            return


# A fault handed to someone else.

T = TypeVar("T")


@public
def reproduce(
    run: RunLike,
    *,
    output: PathLike,
    finding: int = 1,
    keep_samples: int = 4,
    anonymous: bool = False,
    force: bool = False,
    **options: Unpack[Limits],
) -> "PageOutcome[Reproduction]":
    """Cut the smallest case that shows a fault out of the network of a run, write it, and run its script.

    Args:
        run: What diagnose, layers or compare found, or the folder it was written to.
        output: The folder to be written.
        finding: Which fault, counted from 1.
        keep_samples: Samples that come along.
        anonymous: Replace the names of nodes and tensors by numbers.
        force: Replace an earlier reproducer.
        options: What it may take, and who is told of its progress.

    Raises:
        NotLocal: No part of the network shows the fault by itself.
        BadInput: The run cannot be used, or the folder would replace something.
        ModelFailed: A model cannot be run.
    """
    from roundoff.case.bundle import reproduction_page
    from roundoff.case.reproduce import reproduce as cut_out

    call = Call("reproduce", options, Limits)
    cut = partial(
        cut_out, finding=finding, keep_samples=keep_samples, anonymous=anonymous, force=force, limits=call.limits
    )
    made = _written(cut, run, output, call)
    return PageOutcome(made, call.document(()), _code(good=made.good), shown=reproduction_page(made))


@public
def bundle(
    run: RunLike,
    *,
    output: PathLike,
    confidential: bool = False,
    keep_data: bool = False,
    seed: int = 0,
    force: bool = False,
    tell: "Callable[[Message], object] | None" = None,
    **options: Unpack[Limits],
) -> "PageOutcome[Bundle]":
    """Pack what a run found into an archive that someone else can reproduce.

    Args:
        run: What a command found, or the folder it was written to; or the folder of a vendor's build.
        output: The archive to be written. What was called how goes beside it, where names are replaced.
        confidential: Replace weights, names and samples, and verify that the fault is still there.
        keep_data: Keep the samples as they are all the same.
        seed: Of what is chosen at random.
        force: Replace an earlier bundle.
        tell: Told of each step when it is over.
        options: What it may take, and who is told of its progress.

    Raises:
        BadInput: The run cannot be used, or the archive would replace something or give something away.
        ModelFailed: A model cannot be run.
    """
    from roundoff.case.bundle import bundle as pack
    from roundoff.case.bundle import bundle_page

    call = Call("bundle", options, Limits)
    packing = partial(
        pack, confidential=confidential, keep_data=keep_data, seed=seed, force=force, limits=call.limits
    )
    if tell is not None:
        packing = partial(packing, tell=tell)
    packed = _written(packing, run, output, call)
    return PageOutcome(packed, call.document(()), _code(good=packed.shown), shown=bundle_page(packed))


def _written(work: Callable[..., T], run: RunLike, output: PathLike, call: Call) -> T:
    path = as_path(output, option="--output")
    with _folder(run) as source:
        return work(source, path, progress=call.progress)


def _code(*, good: bool) -> int:
    return EXIT_OK if good else EXIT_THRESHOLD_MISSED


@contextlib.contextmanager
def _folder(run: RunLike) -> Iterator[Path]:
    """The folder of a run; what was not written yet is, for as long as it is needed."""
    if not isinstance(run, Outcome):
        yield as_path(run, option="The run")
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        run.save(folder)
        yield folder
