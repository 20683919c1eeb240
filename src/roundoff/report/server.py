"""A read-only server for one person on one machine, and the pages that list and compare the runs of its folder."""

import hashlib
import os
import secrets
import shlex
import socket
import stat
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs

from roundoff.core.document import DOCUMENT_NAME, RunDocument, load_document
from roundoff.core.progress import RunningJob, read_progress
from roundoff.diagnosis.cards import repaired_output
from roundoff.errors import BadInput
from roundoff.messages.catalogue import Language, Phrase, bilingual, plain
from roundoff.messages.message import english
from roundoff.messages.numbers import duration_text
from roundoff.pages.blocks import (
    Block,
    Cell,
    Chart,
    Column,
    Contents,
    Entry,
    Headline,
    Page,
    Paragraph,
    Series,
    TableBlock,
    glossary_page,
)
from roundoff.pages.cards import chip_of, finished_at
from roundoff.pages.html.render import html_report
from roundoff.report.pages import all_pages
from roundoff.studies.run_diff.page import diff_page
from roundoff.studies.run_diff.result import RunDiff

# The runs of a folder, found anew on every request, and the pages that list and compare them.

# Enough for a folder of results; a whole disk is not walked through.
_MOST_RUNS = 500
_MOST_FOLDERS = 5000
_DEEPEST = 4
_LARGEST_BYTES = 256 << 20
# Models whose figures are drawn over time.
_TRENDS = 6


@dataclass(frozen=True, slots=True)
class FoundRun:
    """One run.

    Attributes:
        id: By which it is asked for: made of its place, so that no address names a file.
        name: Its place below the folder.
        path: The folder of the run.
        written: When it was written, in the time of this machine.
        stamp: Changes when the run does.
    """

    id: str
    name: str
    path: Path
    written: str
    stamp: tuple[int, int]


@dataclass(slots=True)
class RunFolder:
    """All runs at or below a folder.

    Attributes:
        root: The folder.
    """

    root: Path
    _read: dict[tuple[str, tuple[int, int]], RunDocument | BadInput] = field(default_factory=dict)

    def runs(self) -> dict[str, FoundRun]:
        """Every run by its id, the newest first. Links are not followed, hidden folders not entered."""
        found = sorted(self._walk(), key=lambda run: run.stamp, reverse=True)
        return {run.id: run for run in found[:_MOST_RUNS]}

    def document(self, run: FoundRun) -> RunDocument:
        """What a run says.

        Raises:
            BadInput: It is no document that this version reads.
        """
        key = (run.id, run.stamp)
        found = self._read.get(key)
        if found is None:
            for old in [each for each in list(self._read) if each[0] == run.id]:
                self._read.pop(old, None)
            try:
                found = load_document(run.path)
            except BadInput as error:
                found = error
            self._read[key] = found
        if isinstance(found, BadInput):
            raise found
        return found

    def jobs(self) -> tuple[RunningJob, ...]:
        """The commands that run now and will write at or below the folder, called by their place in it."""
        return tuple(
            replace(job, output=(place.relative_to(self.root) / job.output).as_posix())
            for place in self._folders()
            for job in read_progress(place)
        )

    def _walk(self) -> Iterator[FoundRun]:
        return (run for place in self._folders() if (run := self._run(place)) is not None)

    def _folders(self) -> Iterator[Path]:
        for count, (place, folders, _) in enumerate(os.walk(self.root)):
            if count >= _MOST_FOLDERS:
                return
            path = Path(place)
            depth = len(path.relative_to(self.root).parts)
            folders[:] = sorted(name for name in folders if depth < _DEEPEST and not name.startswith("."))
            yield path

    def _run(self, path: Path) -> FoundRun | None:
        try:
            # Not what a link points to: that may be anywhere.
            status = (path / DOCUMENT_NAME).lstat()
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_BYTES:
            return None
        name = path.relative_to(self.root).as_posix()
        written = time.strftime("%Y-%m-%d %H:%M", time.localtime(status.st_mtime))
        identity = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
        shown = self.root.name if name == "." else name
        return FoundRun(identity, shown, path, written, (status.st_mtime_ns, status.st_size))


Differ = Callable[[tuple[str, RunDocument], tuple[str, RunDocument]], RunDiff]


@dataclass(frozen=True, slots=True)
class RunSide:
    """One of two runs.

    Attributes:
        name: What it is called.
        document: What it says.
        address: Where it is shown whole.
    """

    name: str
    document: RunDocument
    address: str


def runs_page(folder: RunFolder, runs: Sequence[FoundRun], jobs: Sequence[RunningJob]) -> Page:
    """All runs with their verdicts, and what is running now.

    Args:
        folder: Where they are.
        runs: Those there are, in the order to be shown.
        jobs: Commands that are running.
    """
    blocks: list[Block] = [Headline("open", _running(job)) for job in jobs]
    if not runs:
        blocks.append(Paragraph(bilingual("serve.none")))
        return Page("runs", bilingual("serve.title"), tuple(blocks))
    told = sorted((_told(folder, run) for run in runs), key=lambda each: str(each["written"]), reverse=True)
    rows = tuple(tuple(each[column.id] for column in _COLUMNS) for each in told)
    table = TableBlock(
        "runs",
        bilingual("serve.title"),
        _COLUMNS,
        rows,
        addresses=tuple(f"run/{run.id}/" for run in runs),
        picks=tuple(run.id for run in runs) if len(runs) > 1 else (),
        pick_to="compare/",
        pick_label=bilingual("serve.pick"),
    )
    blocks += [*_trends(told), table]
    return Page("runs", bilingual("serve.title"), tuple(blocks))


_COLUMNS = (
    Column("run", bilingual("serve.run"), "text"),
    Column("model", bilingual("serve.model"), "text"),
    Column("command", bilingual("serve.command"), "text"),
    Column("chip", bilingual("serve.chip"), "text"),
    Column("verdict", bilingual("serve.verdict"), "text"),
    Column("output_db", bilingual("serve.output_db"), "decibels", higher_is_better=True),
    Column("repaired_db", bilingual("serve.repaired_db"), "decibels", higher_is_better=True),
    Column("accuracy", bilingual("serve.accuracy"), "score", higher_is_better=True),
    Column(
        "repaired_accuracy",
        bilingual("serve.repaired_accuracy"),
        "score",
        higher_is_better=True,
        metric="accuracy",
    ),
    Column("written", bilingual("serve.written"), "text"),
)
_ROLES = ("model", "reference", "quantized", "subject")


def _told(folder: RunFolder, run: FoundRun) -> dict[str, Cell]:
    """What the table says of a run; of one that cannot be read, why."""
    cells: dict[str, Cell] = dict.fromkeys(column.id for column in _COLUMNS)
    cells |= {"run": run.name, "written": run.written}
    try:
        document = folder.document(run)
    except BadInput as error:
        return {**cells, "verdict": plain(error.what)}
    cells |= {key: value for key, value in run_figures(document).items() if key in cells}
    # A copy has the time of its file; the run is older.
    cells["written"] = finished_at(document) or run.written
    headlines = _headlines(document)
    if headlines:
        # A finding without a verdict has a page for its sentence.
        cells["verdict"] = headlines[0][1].word
    return cells


def run_figures(document: RunDocument) -> dict[str, Cell]:
    """A run in a row: its model, chip and candidate, the decibels of the worst output, and accuracy.

    Args:
        document: The run.
    """
    words = list(document.command)
    chosen = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--quantized"]
    chosen += [word.partition("=")[2] for word in words if word.startswith("--quantized=")]
    of = {each.role: Path(each.path).name for each in reversed(document.inputs)}
    cells: dict[str, Cell] = {
        "model": next((of[role] for role in _ROLES if role in of), ""),
        "command": " ".join(words[1:2]),
        "chip": chip_of(document) or (Path(chosen[0]).name if chosen else of.get("candidate", "")),
    }
    found, layers, compared = document.diagnosis, document.layers, document.comparison
    if found is not None:
        done = found.repair
        first = next((each for each in found.measures if each.unit == "dB"), None)
        last = None if first is None else repaired_output(first, found)
        if last is None and done is not None:
            last = next((each.after for each in done.measures if each.unit == "dB"), None)
        scores = {each.of: each for each in (found.scores if done is None or not done.scores else done.scores)}
        right = {name: each.value for name, each in scores.items() if each.right is not None}
        cells |= {"output_db": None if first is None else first.before}
        cells |= {"repaired_db": last}
        cells |= {"accuracy": right.get("quantized"), "repaired_accuracy": right.get("repaired")}
    elif layers is not None:
        outputs = [row.accumulated for row in layers.rows if row.output]
        known = [each.sqnr_db for each in outputs if each is not None and each.sqnr_db is not None]
        cells["output_db"] = min(known, default=None)
    elif compared is not None:
        judged = () if compared.outputs is None else compared.outputs.judged
        values = {row.reference: row.score.values.get("sqnr_db") for row in compared.rows}
        cells["output_db"] = min((v for name in judged if (v := values.get(name)) is not None), default=None)
    elif (tuned := document.tuning) is not None:
        held = tuned.holdout
        plain_score, score = tuned.trials[0].score, tuned.best.score if held is None else held.score
        key = {"sqnr_db": "db", "accuracy": "accuracy"}.get(tuned.metric)
        if key is not None:
            cells |= {"output_db" if key == "db" else key: plain_score, f"repaired_{key}": score}
    return cells


def _trends(told: Sequence[dict[str, Cell]]) -> Iterator[Block]:
    """Runs of one command on one model for one chip that have decibels, over time, the oldest on the left."""
    placed = [each for each in reversed(told) if isinstance(each["output_db"], float) and each["model"]]
    joined = [{**each, "model": _kind(each)} for each in placed]
    counted = Counter(str(each["model"]) for each in joined)
    models = [name for name, count in counted.most_common(_TRENDS) if count > 1]
    if not models:
        return
    kept = [each for each in joined if each["model"] in models]
    ids = ("place", "run", "model", "output_db", "repaired_db")
    columns = (Column("place", bilingual("serve.place"), "count"), *(each for each in _COLUMNS if each.id in ids))
    rows = tuple((at, *(each[column.id] for column in columns[1:])) for at, each in enumerate(kept, 1))
    series = [Series(("output_db",), plain(name), "line", only=("model", name)) for name in models]
    if any(isinstance(each["repaired_db"], float) for each in kept):
        series.append(Series(("repaired_db",), bilingual("serve.repaired_db"), "points"))
    axes = (bilingual("serve.place"), bilingual("serve.output_db"))
    yield Chart("trend", bilingual("serve.trend"), "trend", "place", tuple(series), *axes)
    yield TableBlock("trend", bilingual("serve.trend_table"), columns, rows, folded=True)


def _kind(told: Mapping[str, Cell]) -> str:
    """What runs have in common that a line may join."""
    return " \u00b7 ".join(str(told[key]) for key in ("model", "command", "chip") if told[key])


def comparison_pages(before: RunSide, after: RunSide, differ: Differ, *, swapped: str) -> tuple[Page, ...]:
    """Two runs side by side: what every part of each says, and what differs node by node.

    Args:
        before: The one.
        after: The other.
        differ: Finds what differs.
        swapped: Where they are the other way round.
    """
    sides = (before, after)
    blocks = (_side_by_side(sides, swapped), _verdict_table(sides))
    try:
        diff = differ((before.name, before.document), (after.name, after.document))
    except BadInput as error:
        # Runs of two commands have no scores in common; their verdicts still stand side by side.
        said = Paragraph(bilingual("serve.no_diff", why=error.what), note=True)
        return (Page("sides", bilingual("serve.two"), (*blocks, said)),)
    found = diff_page(replace(after.document, diff=diff))
    pages = (Page("sides", bilingual("serve.two"), blocks), *(() if found is None else (found,)))
    glossary = glossary_page(pages)
    return (*pages, *(() if glossary is None else (glossary,)))


def _side_by_side(sides: Sequence[RunSide], swapped: str) -> Contents:
    entries = tuple(
        Entry("", bilingual(f"serve.{word}", name=side.name), "plain", _verdict(side.document), side.address)
        for word, side in zip(("before", "after"), sides, strict=True)
    )
    return Contents((*entries, Entry("", bilingual("serve.swap"), "plain", plain(""), swapped)))


def _verdict_table(sides: Sequence[RunSide]) -> TableBlock:
    verdicts = [_verdicts(side.document) for side in sides]
    titles = {title.en: title for each in verdicts for title in each}
    commands = tuple(plain(shlex.join(side.document.command)) for side in sides)
    rows: tuple[tuple[Cell, ...], ...] = (
        (bilingual("serve.command"), *commands),
        *((title, *(each.get(title, plain("")) for each in verdicts)) for title in titles.values()),
    )
    columns = (
        Column("part", bilingual("serve.part"), "text"),
        Column("first", plain(sides[0].name), "text"),
        Column("second", plain(sides[1].name), "text"),
    )
    return TableBlock("sides", bilingual("serve.sides"), columns, rows)


def _running(job: RunningJob) -> Phrase:
    title = job.title or job.output
    elapsed = duration_text(job.elapsed_s)
    return bilingual(
        "serve.running", name=job.output, title=title, done=job.done, total=job.total, elapsed=elapsed
    )


def _headlines(document: RunDocument) -> list[tuple[Phrase, Headline]]:
    return [
        (page.title, block) for page in all_pages(document) for block in page.blocks if isinstance(block, Headline)
    ]


def _verdict(document: RunDocument) -> Phrase:
    found = _headlines(document)
    return found[0][1].whole if found else plain("")


def _verdicts(document: RunDocument) -> dict[Phrase, Phrase]:
    found: dict[Phrase, Phrase] = {}
    for title, block in _headlines(document):
        found.setdefault(title, block.whole)
    return found


# A read-only server for one person on one machine.
#
# It listens on the loopback address alone, answers only to its own name, and only below an address that nobody can
# guess. Addresses name runs by ids that are looked up, never files.

_LOOPBACK = socket.inet_ntoa(struct.pack(">I", socket.INADDR_LOOPBACK))
_TOKEN_BYTES = 18
# Seconds after which the list is loaded again: soon while something runs, else while there is nothing to tick.
_SOON_S, _LATER_S = 2, 15
_SLOWEST_CLIENT_S = 20
_LONGEST_QUERY = 4096
_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Served:
    """What is served, and to whom.

    Attributes:
        folder: The runs.
        token: The part of the address that nobody can guess.
        language: In which pages open.
        differ: Finds what differs between two runs.
    """

    folder: RunFolder
    token: str
    language: Language
    differ: Differ


class _Server(ThreadingHTTPServer):
    served: Served

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a browser that left before its page was written; anything else is a fault."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Answer:
    text: str
    again_s: int = 0


def make_server(
    root: Path, *, differ: Differ, port: int = 0, language: Language = "en"
) -> tuple[ThreadingHTTPServer, str]:
    """A server that is not running yet, and the address to open.

    Args:
        root: The folder with runs.
        differ: Finds what differs between two runs, each given by its name and document; pages compute nothing.
        port: Where it listens; 0 for any that is free.
        language: In which pages open.

    Raises:
        BadInput: The port is taken, or not to be had.
    """
    try:
        server = _Server((_LOOPBACK, port), _Handler)
    except (OSError, OverflowError, TypeError) as error:
        raise BadInput(
            english("Port {port} cannot be used: {error}.", port=port, error=error),
            fix=english("choose another --port, or leave it out"),
        ) from error
    server.served = Served(RunFolder(root.resolve()), secrets.token_urlsafe(_TOKEN_BYTES), language, differ)
    return server, f"http://{_LOOPBACK}:{server.server_port}/{server.served.token}/"


class _Handler(BaseHTTPRequestHandler):
    server_version = "roundoff"
    sys_version = ""
    timeout = _SLOWEST_CLIENT_S

    def do_GET(self) -> None:
        """Answer with a page, or say that there is none."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """The same without the page."""
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called above
        """Say nothing: addresses hold the token."""

    def _answer(self, *, with_body: bool) -> None:
        server = cast("_Server", self.server)
        if self.headers.get_all("Host") != [f"{_LOOPBACK}:{server.server_port}"]:
            # A page from elsewhere whose name was pointed at this machine.
            self._send(
                HTTPStatus.FORBIDDEN, _Answer("This server answers only to its own address.\n"), "plain", with_body
            )
            return
        found = self._page(server.served)
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, _Answer("There is nothing here.\n"), "plain", with_body)
        else:
            self._send(HTTPStatus.OK, found, "html", with_body)

    def _send(self, status: HTTPStatus, answer: _Answer, kind: str, with_body: bool) -> None:
        # Names of folders need not be text in any encoding.
        content = answer.text.encode(errors="backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", f"text/{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if answer.again_s:
            self.send_header("Refresh", str(answer.again_s))
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def _page(self, served: Served) -> _Answer | None:
        """What an address stands for; None when it stands for nothing."""
        path, _, query = self.path.partition("?")
        words = path.split("/")
        if len(words) < 3 or not secrets.compare_digest(words[1].encode(), served.token.encode()):
            return None
        try:
            if words[2:] == [""]:
                return _list(served)
            return _run_page(served, words[2:], parse_qs(query[:_LONGEST_QUERY]).get("run", []))
        except BadInput as error:
            return _Answer(_html(served, (), str(error)))


def _list(served: Served) -> _Answer:
    """All runs, and what is running."""
    jobs = served.folder.jobs()
    runs = tuple(served.folder.runs().values())
    page = runs_page(served.folder, runs, jobs)
    text = html_report((page,), title=served.folder.root.name, language=served.language)
    return _Answer(text, _SOON_S if jobs else _LATER_S if len(runs) < 2 else 0)


def _run_page(served: Served, words: list[str], asked: Sequence[str]) -> _Answer | None:
    """One run or two; None for what is not in the list of runs.

    Args:
        served: What is served.
        words: Parts of the address.
        asked: Runs that were picked in the list.
    """
    folder, runs = served.folder, served.folder.runs()
    match words:
        case ["run", one, ""] if one in runs:
            return _Answer(_html(served, all_pages(folder.document(runs[one])), runs[one].name))
        case ["compare", ""]:
            # The older one is before the other.
            picked = [run for run in reversed(runs.values()) if run.id in asked]
            if len(picked) == 2:
                return _Answer(_both(served, *picked))
            raise BadInput(
                english("{count} runs were picked.", count=len(picked)),
                fix=english("go back and tick two of them"),
            )
        case ["compare", one, other, ""] if one in runs and other in runs:
            return _Answer(_both(served, runs[one], runs[other]))
    return None


def _both(served: Served, before: FoundRun, after: FoundRun) -> str:
    """Two runs side by side."""
    sides = tuple(
        RunSide(run.name, served.folder.document(run), f"/{served.token}/run/{run.id}/") for run in (before, after)
    )
    swapped = f"/{served.token}/compare/{after.id}/{before.id}/"
    pages = comparison_pages(sides[0], sides[1], served.differ, swapped=swapped)
    return _html(served, pages, f"{before.name} → {after.name}")


def _html(served: Served, pages: tuple[Page, ...], title: str) -> str:
    home = (bilingual("serve.all"), f"/{served.token}/")
    return html_report(pages, title=title, language=served.language, home=home)
