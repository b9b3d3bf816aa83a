"""A real OpenEnv server with small environments, run by uvicorn in a thread."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import contextmanager

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Guess(Action):
    number: int


class Word(Action):
    text: str


class Pair(Action):
    left: int
    right: int


class Seen(Observation):
    hint: str
    tries: int = 0


class Secret(Environment):
    """Guess a number from 0 to 9; by a fixed rule 13 makes it raise."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.secret = random.Random(seed).randrange(10)
        self.tries = 0
        return Seen(hint=f"guess {kwargs.get('what', 'a number')}")

    def step(self, action, timeout_s=None, **kwargs):
        self.tries += 1
        number = action.number if isinstance(action, Guess) else action.left + action.right
        if number == 13:
            raise ValueError("unlucky")
        hint = "right" if number == self.secret else "higher" if number < self.secret else "lower"
        return Seen(hint=hint, tries=self.tries, done=hint == "right", reward=float(hint == "right"))

    @property
    def state(self):
        return State()


class Echo(Secret):
    """Says what it was told."""

    def step(self, action, timeout_s=None, **kwargs):
        self.tries += 1
        return Seen(hint=action.text[:50], tries=self.tries, reward=None)


@contextmanager
def served(environment: type[Environment], action: type[Action]):
    """The address of a server of this environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = create_fastapi_app(environment, action, Seen, max_concurrent_envs=100)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
