"""The report: how large it is, and how soon it can be used, against what users were promised."""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.browser.chromium import BROWSERS, Browser, find_browser, open_browser
from tests.report.documents import large_document

from roundoff.pages.html.render import html_report
from roundoff.report.pages import all_pages

# Nodes, megabytes and seconds: what a report may take at most.
_PROMISES = ((500, 5.0, 2.0), (2000, 10.0, 3.0))
_REPETITIONS = 5
_MEGABYTE = 1 << 20
# The first frame draws the charts in view, the second one shows them.
_DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"


def main() -> int:
    """Print one line per size; 1 when a promise is broken."""
    program = find_browser()
    if program is None:
        print(f"no browser: none of {', '.join(BROWSERS)} is installed")
        return 0
    kept = True
    print(f"{'nodes':>6}{'rendered':>10}{'size':>10}{'allowed':>10}{'ready':>9}{'allowed':>9}")
    with tempfile.TemporaryDirectory() as place, open_browser(program, Path(place) / "profile") as browser:
        for nodes, most_megabytes, most_seconds in _PROMISES:
            pages = all_pages(large_document(nodes))
            began = time.perf_counter()
            text = html_report(pages, title="a report")
            rendered = time.perf_counter() - began
            path = Path(place) / f"{nodes}.html"
            path.write_text(text, encoding="utf-8")
            ready = statistics.median(_seconds(browser, path) for _ in range(_REPETITIONS))
            size = path.stat().st_size / _MEGABYTE
            kept = kept and size < most_megabytes and ready < most_seconds
            print(
                f"{nodes:>6}{rendered:>8.2f} s{size:>7.2f} MB{most_megabytes:>7.0f} MB"
                f"{ready:>7.2f} s{most_seconds:>7.0f} s"
            )
    return 0 if kept else 1


def _seconds(browser: Browser, path: Path) -> float:
    """From opening a report until what is seen of it is drawn."""
    began = time.perf_counter()
    browser.open(path)
    browser.run(_DRAWN)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
