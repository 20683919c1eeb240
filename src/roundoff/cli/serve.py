"""Browse the runs of a folder, with the pages of 'roundoff report'.

Lists every run at or below DIR, renders it on request, compares any two as
'roundoff diff' does, and shows how far commands are that write into DIR with
-o. It only reads. It listens on this machine alone and prints an address with a
random part that nobody can guess; give that address to no one. Ctrl-C ends it.
"""

import argparse
from pathlib import Path

from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, BadInput
from roundoff.messages.message import english

_LAST_PORT = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder with runs")
    parser.add_argument(
        "--port", type=_port, default=0, metavar="N", help="where to listen (default: any free one)"
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(
            english(
                "{text!r} is not a port; give a number up to {last_port}, or 0 for any",
                text=text,
                last_port=_LAST_PORT,
            )
        )
    return int(text)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until interrupted."""
    from roundoff.messages.catalogue import current_language
    from roundoff.report.server import make_server
    from roundoff.studies.run_diff.study import diff_runs

    if not args.folder.is_dir():
        raise BadInput(
            english("{folder} is not a folder.", folder=args.folder),
            fix=english("give the folder that your runs are in"),
        )
    server, address = make_server(args.folder, differ=diff_runs, port=args.port, language=current_language())
    terminal.text(address)
    terminal.note(english("serving {folder}, read-only; Ctrl-C ends it", folder=args.folder))
    try:
        with server:
            server.serve_forever()
    except KeyboardInterrupt:
        terminal.note(english("ended"))
    return EXIT_OK
