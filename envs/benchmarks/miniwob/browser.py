"""A headless Chromium over a pipe (Chrome DevTools Protocol); one for a process, a page for each environment.

It loads files of a package alone, has no network, and gets a model's words as values, never as script.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

from ragen_verl.errors import MissingExtra

__all__ = ["Page", "open_page"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless=new --remote-debugging-pipe --disable-gpu --no-first-run --disable-extensions --disable-dev-shm-usage "
    "--disable-background-networking --disable-sync --mute-audio --no-default-browser-check --window-size=500,400 "
    "--disable-background-timer-throttling --disable-renderer-backgrounding --disable-backgrounding-occluded-windows"
)
_NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND"
_ANSWER_S = 20.0

_browser: _Browser | None = None
_lock = threading.RLock()


class _Browser:
    """The process, with one request at a time."""

    def __init__(self) -> None:
        program = next((found for name in _NAMES if (found := shutil.which(name))), None)
        if program is None:
            raise MissingExtra(
                "MiniWoB++ is played in Chromium, which this machine lacks: run apt-get install chromium."
            )
        read, self._into = os.pipe()
        self._out, write = os.pipe()
        self._home = tempfile.TemporaryDirectory(prefix="chromium-")
        root = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's own sandbox does not start as root
        command = [program, *_OPTIONS.split(), _NO_NETWORK, *root, f"--user-data-dir={self._home.name}", "about:blank"]

        def placed() -> None:  # Chromium reads requests from descriptor 3 and writes answers to 4
            low, high = os.dup(read), os.dup(write)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=placed,
            pass_fds=(3, 4),
            env={"HOME": self._home.name, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        )
        os.close(read)
        os.close(write)
        self._rest, self._number, self._owner = b"", 0, os.getpid()

    def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a request and return its result; raises RuntimeError where it fails or the browser is gone."""
        with _lock:
            self._number += 1
            request = {"id": self._number, "method": method, "params": params}
            line = json.dumps({**request, "sessionId": session} if session else request).encode() + b"\0"
            try:
                while line:
                    line = line[os.write(self._into, line) :]
            except OSError as error:
                raise RuntimeError(f"Chromium is gone ({error}).") from error
            deadline = time.monotonic() + _ANSWER_S
            while True:
                answer = self._next(deadline)
                if answer.get("id") == self._number:
                    break
        if "error" in answer:
            raise RuntimeError(f"Chromium refused {method}: {answer['error'].get('message')}")
        return answer["result"]

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready = select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))[0]
            block = os.read(self._out, 2**16) if ready else b""
            if not block:
                raise RuntimeError("Chromium does not answer.")
            self._rest += block
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def close(self) -> None:
        """End the process and remove its folder."""
        if self._owner == os.getpid():
            self._process.kill()
            self._process.wait()
            self._home.cleanup()


class Page:
    """A page of the browser."""

    def __init__(self, browser: _Browser) -> None:
        self._browser = browser
        self._target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.ask("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]

    def go(self, url: str) -> None:
        """Load a page and wait until it has run its `onload`."""
        self._browser.ask("Page.navigate", self._session, url=url)
        deadline = time.monotonic() + _ANSWER_S
        while time.monotonic() < deadline:
            if self.run("() => document.readyState === 'complete' && location.href !== 'about:blank'"):
                return
            time.sleep(0.005)
        raise RuntimeError(f"Chromium did not load {url}.")

    def run(self, function: str, *values: Any) -> Any:
        """Call a function, written in JavaScript by us, with values; return its value."""
        context = self._browser.ask("Runtime.evaluate", self._session, expression="globalThis")["result"]["objectId"]
        answer = self._browser.ask(
            "Runtime.callFunctionOn",
            self._session,
            objectId=context,
            functionDeclaration=function,
            arguments=[{"value": value} for value in values],
            returnByValue=True,
            awaitPromise=True,
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(f"The page failed: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def close(self) -> None:
        """Close the page."""
        with suppress(RuntimeError):  # the browser is gone, and the page with it
            self._browser.ask("Target.closeTarget", targetId=self._target)


def open_page() -> Page:
    """A new page of this process's browser, which starts with the first one."""
    global _browser
    with _lock:
        if _browser is None or _browser._owner != os.getpid() or _browser._process.poll() is not None:
            _browser = _Browser()
            atexit.register(_browser.close)
        return Page(_browser)
