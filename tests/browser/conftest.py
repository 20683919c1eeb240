"""One browser for all tests of a module."""

from collections.abc import Iterator

import pytest

from tests.browser.chromium import BROWSERS, Browser, find_browser, open_browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    with open_browser(program, tmp_path_factory.mktemp("profile")) as found:
        yield found
