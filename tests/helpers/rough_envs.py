"""Environments that misbehave, in a module of their own so that other processes can import them."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter

from ragen_envs.frozen_lake import FrozenLake

from ragen_verl import Env

STEPS: Counter = Counter()
GATE = threading.Event()


class Count(Env):
    """Counts its steps, and does on order what the action says."""

    instruction = "Count."
    max_actions = 100

    def __init__(self, name: str = "count", slow: float = 0.0, shown: str = "") -> None:
        self.name, self.slow, self.shown = name, slow, shown

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        self.luck = int(self.np_random.integers(1000))
        return self.render(), {}

    def step(self, action):
        if self.slow:
            time.sleep(self.slow)
        match str(action):
            case "raise":
                raise ValueError("as asked")
            case "exit":
                os._exit(7)
            case "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                GATE.wait()
        STEPS[self.name] += 1
        self.count += 1
        draw = int(self.dynamics.integers(1000))
        return self.outcome(self.count + draw / 1000, success=action == "win", terminated=action == "win", draw=draw)

    def render(self):
        return f"{self.count} of {self.luck} {self.where()}"

    def where(self):
        return ""


class Drifts(Count):
    """Depends on more than seed, member and actions."""

    version = 0

    def where(self):
        return f"in version {type(self).version}"


class Apart(Count):
    """The same in a process of its own."""

    isolation = "process"


class ApartLake(FrozenLake):
    """A lake that uses the generators of its process and asks for one of its own."""

    isolation = "process"

    def __init__(self):
        super().__init__(success_rate=1.0)

    def step(self, action):
        random.seed(1)
        return super().step(action)


class Tell(Apart):
    """Shows the process it is in, so that no other process shows the same."""

    def where(self):
        return f"in {os.getpid()}"


class TellAction(Tell):
    """Tells it only after two actions: the beginning is the same everywhere."""

    def where(self):
        return f"in {os.getpid()}" if self.count >= 2 else ""
