"""MiniWoB++: small web pages in a real browser, read as text."""

from __future__ import annotations

import json
import time
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ragen_envs.benchmarks.benchmark import Benchmark
from ragen_envs.benchmarks.miniwob.browser import Page, open_page
from ragen_envs.benchmarks.miniwob.solutions import SOLUTIONS, Element
from ragen_envs.benchmarks.packages import missing

from ragen_verl.env.arguments import check_switch, check_whole
from ragen_verl.env.core import Step
from ragen_verl.env.tools import ToolError, called, tool
from ragen_verl.errors import BadEnvKwargs, nearest

__all__ = ["MiniWoB"]

_ENDLESS_S = 1e6  # the page's own clock, where the reward does not decay
_READY_S = 10.0


class MiniWoB(Benchmark):
    """## Description

    MiniWoB++ (package miniwob, MIT, an extra; arXiv 1802.08802): tasks on small web pages, such as ticking boxes or
    filling in a form. A headless Chromium shows the pages; the model reads their elements as text. Pages, tasks and
    rewards are the package's own. Screenshots, the mouse's place and dragging are not offered, so tasks that need them
    cannot be solved.

    ## Action Space

    Calls of `click`, `write` and `choose`, each with the number of an element.

    ## Observation Space

    Text: the task, and a line for each visible element: its number, its tag, its text and what it has of id, class,
    type, value, options and colours.

    ## Starting State

    The episode that the page makes from its seed: `episodes` of them for each page, numbered page by page. The task's
    number is the group's seed modulo their number, or `options={"task": i}`.

    ## Rewards

    The official reward at the end, from -1 to 1; 0 before.

    ## Episode End

    Terminates when the page ends the episode. Solved: the raw reward, without decay, is above 0, as in the field's
    success rates. A reply that calls nothing ends it with 0.

    ## Arguments

    - `page=None`: the name of a page, such as "click-button"; None for all that a rule solves (`solutions.py`).
    - `episodes=10`: how many episodes of each page there are.
    - `first=0`: the seed of the first of them, so that splits do not share any.
    - `decay=False`: True takes the reward that decays to 0 within the page's 10 seconds, which makes it depend on the
      speed of model and machine; False takes the raw one and stops the clock.

    Tasks whose pages move by themselves may differ between machines.

    ## Version History

    - v0: first version.
    """

    package = "miniwob"
    isolation = "process"  # each process has a browser
    instruction = "Do what the task on a web page asks for. Elements are named by the numbers in brackets."
    max_actions = 30
    charset = "".join(map(chr, range(1, 0x2FFF)))
    _page: Page | None = None
    _plan: tuple[str, ...] = ()

    def __init__(self, page: str | None = None, episodes: int = 10, first: int = 0, decay: bool = False) -> None:
        check_whole("MiniWoB: episodes", episodes, 1)
        check_whole("MiniWoB: first", first, 0)
        check_switch("MiniWoB: decay", decay)
        if page is not None and page not in _pages():
            raise BadEnvKwargs(f"MiniWoB has no page {page!r}: {nearest(page, list(_pages()))}")
        self.pages = (page,) if page else tuple(SOLUTIONS)
        self.episodes, self.first, self.decay = episodes, first, decay
        self.tasks = len(self.pages) * episodes

    def _place(self, task: int) -> tuple[str, int]:
        """The page of a task, and the seed of its episode."""
        return self.pages[task // self.episodes], self.first + task % self.episodes

    def task_key(self, task: int) -> str:
        """Page and seed."""
        return "{}/{}".format(*self._place(task))

    def begin(self) -> str:
        """Load the page and begin its episode."""
        if self._page is None:
            self._page = open_page()
        self._name, number = self._place(self.task)
        self._page.go(_pages()[self._name].as_uri())
        self._page.run(f"function() {{ {_script()} }}")
        self._page.run("(seed, seconds) => ragen.begin(seed, seconds)", number, None if self.decay else _ENDLESS_S)
        deadline = time.monotonic() + _READY_S
        while not self._page.run("() => ragen.ready()") and time.monotonic() < deadline:
            time.sleep(0.01)
        seen = self._page.run("() => ragen.look()")
        moves = SOLUTIONS[self._name](seen["task"], seen["elements"]) if self._name in SOLUTIONS else []
        self._plan = tuple(called(name, **given) for name, given in moves)
        return _text(seen)

    def step(self, action: str) -> Step:
        """Make one call."""
        if self._page is None and self._actions is not None and not self._ended:
            self._replay()
        return super().step(action)

    @tool
    def click(self, ref: int) -> Step:
        """Click an element.

        Args:
            ref: its number.
        """
        return self._done("click", ref)

    @tool
    def write(self, ref: int, text: str) -> Step:
        """Write into a text field, in the place of what is there.

        Args:
            ref: the field's number.
            text: the text.
        """
        return self._done("write", ref, text)

    @tool
    def choose(self, ref: int, option: str) -> Step:
        """Choose an option of a menu.

        Args:
            ref: the menu's number.
            option: the option's text.
        """
        return self._done("choose", ref, option)

    def _done(self, what: str, *values: Any) -> Step:
        done = self._page.run(f"(...values) => ragen.{what}(...values)", *values)  # one of three words of ours
        if not done:
            raise ToolError(f"The element {values[0]} is not there, or is nothing to {what}.")
        score = self._page.run("() => ragen.score()")
        if score["done"]:
            reward = float(score["reward"] if self.decay else score["raw"])
            return self.end("The episode is over.", reward, success=score["raw"] > 0)
        return Step(_text(self._page.run("() => ragen.look()")), 0.0, False, False, {})

    def gold(self) -> list[str]:
        """The moves of the page's rule, [] where it has none."""
        return list(self._plan)

    def _replay(self) -> None:
        """Play the episode so far in a page of its own, since this is a copy or was closed."""
        actions = self._actions
        self.reset(seed=self.seed, options={"rollout_index": self.rollout_index, "task": self.task})
        for action in actions:
            self.step(action)

    def close(self) -> None:
        """Close the page."""
        page, self._page = self._page, None
        if page is not None:
            page.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_page": None}

    def __deepcopy__(self, memo: dict) -> MiniWoB:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__getstate__())
        return other


def _text(seen: dict[str, Any]) -> str:
    return "\n".join([f"Task: {seen['task']}", *map(_line, seen["elements"])])


def _line(element: Element) -> str:
    """An element as a line of text."""
    shown = {key: value for key, value in element.items() if key not in ("ref", "tag", "text") and value != ""}
    shown = {"class" if key == "kind" else key: value for key, value in shown.items()}
    rest = "".join(f" {key}={json.dumps(value, ensure_ascii=False)}" for key, value in shown.items())
    text = f" {json.dumps(element['text'], ensure_ascii=False)}" if element["text"] else ""
    return f"[{element['ref']}] {element['tag']}{text}{rest}"


@lru_cache(maxsize=1)
def _script() -> str:
    return Path(__file__).with_name("page.js").read_text("utf-8")


@lru_cache(maxsize=1)
def _pages() -> dict[str, Path]:
    """The name of every page -> its file."""
    if (found := find_spec("miniwob")) is None:
        raise missing("miniwob", "miniwob")
    folder = Path(found.origin).parent / "html" / "miniwob"  # the package itself would import a driver of its own
    return {file.stem: file for file in sorted(folder.glob("*.html"))}
