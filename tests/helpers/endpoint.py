"""A real HTTP server on this machine that speaks the chat API, and misbehaves as a test wants."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ("429", "500", "garbage", "half", "no choices", "closed", "slow")
RETRY_AFTER = "0.01"


def reply(said: str | dict, finish: str = "stop") -> bytes:
    """A chat completion whose message has this content, or these fields."""
    fields = {"content": said} if isinstance(said, str) else said
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **fields}}
    usage = {"prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37}
    head = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
    return json.dumps({**head, "choices": [choice], "usage": usage}).encode()


@contextmanager
def endpoint(
    answer: str | dict | Callable[[dict], str | dict | tuple[int, dict]],
    *faults: str | dict | list,
    retry_after: str = RETRY_AFTER,
    finish: str = "stop",
) -> Iterator[tuple[str, list[dict]]]:
    """An endpoint whose first requests fail as `faults` say (or get one as the body), one each; it answers all others.

    The answer is the content or the fields of the message, or an HTTP status and the error of its body.

    Yields its base address and the bodies of the requests, each with the `time` it came at.
    """
    requests: list[dict] = []
    left = list(faults)
    lock, done = threading.Lock(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open, as with real servers

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                requests.append({**body, "time": time.monotonic()})
                fault = left.pop(0) if left else "none"
            if fault in ("429", "500"):
                self.send_response(int(fault))
                self.send_header("Retry-After", retry_after)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if fault == "closed":
                self.close_connection = True
                return
            if fault == "slow":
                done.wait(30)  # until the test is over; the client gives up long before
                self.close_connection = True
                return
            said = answer(body) if callable(answer) else answer
            status = 200
            if isinstance(said, tuple):
                status, content = said[0], json.dumps({"error": said[1]}).encode()
            else:
                broken = {"garbage": b"<html>", "no choices": b'{"choices": []}'}
                whole = isinstance(fault, str)
                content = broken.get(fault, reply(said, finish)) if whole else json.dumps(fault).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if fault == "half" else content)
            self.close_connection = fault == "half"

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.block_on_close = True, False  # some wait for a next request
    server.handle_error = lambda *_: None  # a client that no longer waits for its answer is no fault of the test
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        done.set()
        server.shutdown()
        server.server_close()
        thread.join()
