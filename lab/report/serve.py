"""The page over HTTP during a training; it is made anew when the run has written something."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from ragen_lab.report.page import render
from ragen_lab.report.reading import Run, read_run

from ragen_verl.errors import RecipeError
from ragen_verl.runs.folder import RunFolder

__all__ = ["Pages", "server"]


class Pages:
    """The page of a run and its version; several threads may use it.

    Args:
        folder: the run's folder.
        limit: as in `render`.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._lock, self._made, self._page = Lock(), "", b""

    def version(self) -> str:
        """A text that changes with the page; it is cheap, since every open page asks for it every few seconds."""
        return Run(RunFolder(self._folder)).signature()

    def page(self) -> bytes:
        """The present page."""
        with self._lock:
            run = read_run(self._folder)
            if not self._page or run.version != self._made:
                self._page, self._made = render([run], self._limit, live=True), run.version
            return self._page


def server(pages: Pages, host: str, port: int) -> ThreadingHTTPServer:
    """A server of the page, bound and not yet started; port 0 takes a free one.

    Raises:
        RecipeError: host and port cannot be used.
    """

    class Handler(BaseHTTPRequestHandler):
        """Answers `/` with the page and `/version` with its version."""

        def do_GET(self) -> None:
            answers: dict[str, tuple[Callable[[], bytes], str]] = {
                "/": (pages.page, "text/html"),
                "/version": (lambda: pages.version().encode(), "text/plain"),
            }
            if self.path not in answers:
                self.send_error(404)
                return
            make, kind = answers[self.path]
            try:
                body, status = make(), 200
            except (RecipeError, OSError) as error:  # the folder is gone
                body, kind, status = str(error).encode("utf-8", "backslashreplace"), "text/plain", 503
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing, since the terminal shows the view of the run."""

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        reason = error.strerror or error
        raise RecipeError(f"The page cannot be served at {host}:{port} ({reason}): name another --port.") from error
