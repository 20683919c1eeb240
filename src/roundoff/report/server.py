"""A read-only server for one person on one machine.

It listens on the loopback address alone, answers only to its own name, and only below an address that nobody can
guess. Addresses name runs by ids that are looked up, never files.
"""

import secrets
import socket
import struct
import sys
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

from roundoff.errors import BadInput
from roundoff.messages.catalogue import Language, bilingual
from roundoff.messages.message import english
from roundoff.pages.blocks import Page
from roundoff.pages.html.render import html_report
from roundoff.report.pages import all_pages
from roundoff.report.run_list import (
    Differ,
    FoundRun,
    RunFolder,
    RunSide,
    comparison_pages,
    partners_page,
    runs_page,
)

_LOOPBACK = socket.inet_ntoa(struct.pack(">I", socket.INADDR_LOOPBACK))
_TOKEN_BYTES = 18
# Seconds after which the list is loaded again: soon while something runs, now and then otherwise.
_SOON_S, _LATER_S = 2, 15
_SLOWEST_CLIENT_S = 20
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
    except (OSError, OverflowError) as error:
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
        words = self.path.partition("?")[0].split("/")
        if len(words) < 3 or not secrets.compare_digest(words[1].encode(), served.token.encode()):
            return None
        try:
            return _list(served) if words[2:] == [""] else _run_page(served, words[2:])
        except BadInput as error:
            return _Answer(_html(served, (), str(error)))


def _list(served: Served) -> _Answer:
    """All runs, and what is running."""
    jobs = served.folder.jobs()
    page = runs_page(served.folder, tuple(served.folder.runs().values()), jobs)
    text = html_report((page,), title=served.folder.root.name, language=served.language)
    return _Answer(text, _SOON_S if jobs else _LATER_S)


def _run_page(served: Served, words: list[str]) -> _Answer | None:
    """One run or two; None for what is not in the list of runs."""
    folder, runs = served.folder, served.folder.runs()
    match words:
        case ["run", one, ""] if one in runs:
            return _Answer(_html(served, all_pages(folder.document(runs[one])), runs[one].name))
        case ["compare", one, ""] if one in runs:
            others = [run for run in runs.values() if run.id != one]
            return _Answer(_html(served, (partners_page(folder, runs[one], others),), runs[one].name))
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
