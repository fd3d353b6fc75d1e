"""A headless Chromium driven by the DevTools protocol over two pipes: no driver, no websocket, no
package.
"""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]
PATIENCE = 90.0  # seconds for an answer; a busy machine starts a browser slowly


def binary() -> str | None:
    """The browser's path, None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Chromium:
    """One page of a fresh browser; a context manager. `problems` collects console errors and
    uncaught exceptions.
    """

    def __init__(self, profile: Path, width: int = 1280, height: int = 900) -> None:
        command = [
            str(binary()),
            *FLAGS,
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            "about:blank",
        ]
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # The browser reads descriptor 3 and writes descriptor 4.
        plumbing = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", plumbing, "bash", *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._numbers, self._buffer, self._events = itertools.count(1), b"", []
        self._session: str | None = None
        self.problems: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters):
        """The result of a protocol method; RuntimeError with the browser's message where it
        refuses.
        """
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != number:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, file: Path) -> None:
        """Show a file and wait until it is loaded."""
        self._events.clear()
        self.call("Page.navigate", url=file.as_uri())
        while "Page.loadEventFired" not in self._events:
            self._note(self._receive())

    def run(self, script: str):
        """Value of a JavaScript expression."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def screenshot(self, file: Path) -> None:
        """What the window shows, as PNG."""
        file.write_bytes(
            base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        )

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        with suppress(RuntimeError, OSError):
            self.call("Browser.close")
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def _note(self, event: dict) -> None:
        name, details = event.get("method", ""), event.get("params", {})
        self._events.append(name)
        if name == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(details["exceptionDetails"]))
        if name == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(details["args"]))
        if name == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.problems.append(details["entry"]["text"])

    def _receive(self) -> dict:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError(
                    "the browser has ended" if ready else f"no answer within {PATIENCE:.0f} s"
                )
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)


def main() -> None:
    """The screenshots of docs/images: `python tests/report/chromium.py report.html docs/images`."""
    page, folder = (Path(argument).resolve() for argument in sys.argv[1:])
    with tempfile.TemporaryDirectory() as profile, Chromium(Path(profile)) as browser:
        browser.open(page)
        browser.run("document.documentElement.style.scrollBehavior = 'auto'")
        for part in ("top", "plots", "trees"):
            if browser.run(
                f"(at = document.getElementById('{part}')) && (at.scrollIntoView(), true)"
            ):
                browser.screenshot(folder / f"report_{part}.png")


if __name__ == "__main__":
    main()
