"""A headless Chromium, spoken to over a pipe: no server, no port, no further package."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)  # fmt: skip
_LONGEST_WAIT_S = 30.0
# Moves what was inherited to where the browser expects it, and becomes the browser.
_BECOME = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """Where a browser is, if there is one."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


class PageLeft(AssertionError):
    """The page was left while it was asked something."""


class Browser:
    """One tab.

    Attributes:
        complaints: Errors and warnings that pages wrote to the console, and exceptions.
        requests: Addresses that pages asked for.
    """

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._buffer = b""
        self._count = 0
        self._session = ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, path: Path | str, fragment: str = "", *, width: int = 1280, height: int = 900) -> float:
        """Open a file or an address and wait until its script is ready; the seconds that took."""
        began = time.monotonic()
        self.show(path, fragment, width=width, height=height)
        self.wait("document.documentElement?.dataset.ready === 'yes'")
        return time.monotonic() - began

    def show(self, path: Path | str, fragment: str = "", *, width: int = 1280, height: int = 900) -> None:
        """Open a file or an address."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        self.complaints.clear()
        self.requests.clear()
        self._call("Page.navigate", url="about:blank")
        self._call("Page.navigate", url=(path if isinstance(path, str) else path.as_uri()) + fragment)

    @contextmanager
    def without_scripts(self) -> Iterator[None]:
        """Pages run no script meanwhile."""
        self._call("Emulation.setScriptExecutionDisabled", value=True)
        try:
            yield
        finally:
            self._call("Emulation.setScriptExecutionDisabled", value=False)

    def wait(self, condition: str) -> None:
        """Wait until an expression holds in the page, which may be loading another one meanwhile."""
        began = time.monotonic()
        held = False
        while not held:
            with suppress(PageLeft):
                held = self.run(condition) is True
            if not held and time.monotonic() - began > _LONGEST_WAIT_S:
                raise TimeoutError(f"{condition} did not come true: {self.complaints}")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def screenshot(self) -> str:
        """What is seen, as base64 of a PNG."""
        return str(self._call("Page.captureScreenshot")["data"])

    def press(self, key: str, code: int) -> None:
        """Press a key and let it go.

        Args:
            key: Its name, as ``Tab``.
            code: Its number.
        """
        for kind in ("rawKeyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def printed(self) -> str:
        """What a printer gets, as base64 of a PDF."""
        return str(self._call("Page.printToPDF")["data"])

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _LONGEST_WAIT_S
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._count:
                if "error" in answer:
                    kind = PageLeft if method == "Runtime.evaluate" else AssertionError
                    raise kind(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._notice(answer)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self._read, 1 << 16)
            if not chunk:
                raise ConnectionError("the browser has ended")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _notice(self, event: dict[str, Any]) -> None:
        method, details = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(details["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(details["args"])[:500])
        elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.complaints.append(details["entry"]["text"][:500])
        elif method == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"][:200])


@contextmanager
def open_browser(program: str, profile: Path) -> Iterator[Browser]:
    """Start a browser, and end it.

    Args:
        program: Where it is.
        profile: An empty folder for what it remembers.
    """
    answers, browser_answers = os.pipe()
    browser_commands, commands = os.pipe()
    # Out of the way of 3 and 4, where the browser reads commands and answers.
    inherited = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (browser_commands, browser_answers)]
    process = subprocess.Popen(
        [sys.executable, "-c", _BECOME, *map(str, inherited), program, *_FLAGS, f"--user-data-dir={profile}",
         "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=inherited,
    )  # fmt: skip
    for each in (browser_answers, browser_commands, *inherited):
        os.close(each)
    try:
        yield Browser(answers, commands)
    finally:
        process.kill()
        process.wait()
        os.close(answers)
        os.close(commands)
