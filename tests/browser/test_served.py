"""Served pages in a real browser: the list, a report, two runs compared, and a command that is running."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from roundoff.core.progress import RunningJob, progress_path
from roundoff.report.pages import write_run
from roundoff.report.server import make_server
from roundoff.studies.run_diff.study import diff_runs
from tests.browser.chromium import Browser
from tests.report.documents import large_document


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    for name in ("before", "after"):
        write_run(large_document(30), tmp_path / name, force=False)
    server, found = make_server(tmp_path, differ=diff_runs)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


def follow(browser: Browser, selector: str, there: str) -> None:
    """Click a link and wait for what is on its page."""
    browser.run(f"document.querySelector({selector!r}).click()")
    browser.wait(
        f"document.documentElement?.dataset.ready === 'yes' && document.querySelector({there!r}) !== null"
    )


def silent(browser: Browser, address: str) -> bool:
    """No complaint, and nothing asked for but the server's own pages."""
    assert browser.complaints == []
    strangers = [each for each in browser.requests if not each.startswith((address, "about:", "data:", "blob:"))]
    assert strangers == []
    return True


def test_from_the_list_to_a_report_and_back(browser: Browser, address: str) -> None:
    browser.open(address)
    assert browser.run("document.querySelectorAll('table a[href^=run]').length") == 2
    follow(browser, "table a[href^=run]", "#table-layers")
    assert browser.run("document.querySelectorAll('#table-layers tbody tr').length") == 30
    follow(browser, "nav a", "table a[href^=run]")
    assert silent(browser, address)


def test_two_runs_are_compared(browser: Browser, address: str) -> None:
    browser.open(address)
    browser.run("document.querySelectorAll('input[name=run]').forEach((each) => each.click())")
    follow(browser, ".picks button", "#table-diff")
    assert browser.run("document.querySelectorAll('#chart-diff-along').length") == 1
    assert "SAME" in browser.run("document.querySelector('#page-diff .pills').textContent")
    title = browser.run("document.title")
    follow(browser, ".contents a[href*=compare]", "#table-diff")
    browser.wait(f"document.title === {' → '.join(reversed(title.split(' → ')))!r}")
    assert silent(browser, address)


def test_a_running_command_comes_and_goes(browser: Browser, address: str, tmp_path: Path) -> None:
    job = RunningJob("third", "layers", 3, 120, 7.5, os.getpid())
    progress = progress_path(tmp_path / "third")
    progress.write_text(json.dumps({name: getattr(job, name) for name in job.__slots__}))
    browser.open(address)
    assert "third: layers, 3 of 120" in browser.run("document.querySelector('.headline').textContent")
    # The page loads itself again: once it is over, the run is in the list.
    write_run(large_document(3), tmp_path / "third", force=False)
    progress.unlink()
    browser.wait(
        "document.querySelectorAll('table a[href^=run]').length === 3"
        " && document.querySelector('.headline') === null"
    )
    assert silent(browser, address)


@pytest.mark.parametrize("path", ["", "wrong/", "%2e%2e/%2e%2e/etc/passwd"])
def test_without_the_token_there_is_nothing(browser: Browser, address: str, path: str) -> None:
    parts = urlsplit(address)
    browser.open(address)
    browser.run(f"location.href = {f'{parts.scheme}://{parts.netloc}/{path}'!r}")
    browser.wait("document.body?.textContent.trim() === 'There is nothing here.'")
