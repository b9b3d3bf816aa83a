"""`Repair`: a small package with a fault, mended by reading, editing and testing it."""

from __future__ import annotations

from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from ragen_envs.repair.faults import MODULES, Fault, faults, source
from ragen_envs.repair.judge import failing
from ragen_envs.sandbox import Limits, isolates

from ragen_verl.env.arguments import check_seconds
from ragen_verl.env.core import Step
from ragen_verl.env.tools import ToolEnv, ToolError, called, tool
from ragen_verl.errors import RecipeError

__all__ = ["Repair"]

_MOST_TEXT = 20_000
_SHOWN = 5


class Repair(ToolEnv):
    """## Description

    A small package of plain functions (`almanac`, six modules) has faults: a comparison, an operator, a number or a
    word like `min` was replaced by another one. The model reads modules, edits them, and runs the package's cases, in
    a sandbox.

    ## Action Space

    Calls of `read(module)`, `edit(module, old, new)` and `test()`.

    ## Observation Space

    Text: a module, or how many cases fail and the first of them. Every second case is hidden: of these the function
    alone is named, so that results cannot be written into the program one by one.

    ## Starting State

    The faults are drawn with the seed from those that make cases fail. The first reset of a start runs the cases
    (0.15 s for one fault); the other episodes of its group take it from memory.

    ## Rewards

    1 when all cases pass at a `test`.

    ## Episode End

    Terminates when all cases pass, and with a reply that calls nothing.

    ## Arguments

    - `bugs=1`: how many faults, 1 to 4.
    - `modules`: those that may have a fault, from `days, intervals, lists, numerals, sums, words`; all by default. One
      fault is one of about 260, so training and a held-out split take different modules, or several faults.
    - `sandbox="bubblewrap"`: the kind of sandbox; without one nothing runs.
    - `timeout_s=5.0`: seconds of all cases together.

    ## Version History

    - v0: first version.
    """

    instruction = (
        "Some functions of a Python package give wrong results. Read its modules, mend them with edit, and run test: "
        "the task is done when all cases pass."
    )
    max_actions = 12
    _ended = _solved = False

    def __init__(
        self,
        bugs: int = 1,
        modules: list[str] | tuple[str, ...] = MODULES,
        sandbox: str = "bubblewrap",
        timeout_s: float = 5.0,
    ) -> None:
        if isinstance(bugs, bool) or bugs not in range(1, 5):
            raise RecipeError(f"Repair: bugs is {bugs!r}: it goes from 1 to 4.")
        if isinstance(modules, str) or not modules or not set(modules) <= set(MODULES):
            raise RecipeError(f"Repair: modules is {modules!r}: make it a list of some of {', '.join(MODULES)}.")
        check_seconds("Repair: timeout_s", timeout_s)
        isolates(sandbox)
        self.bugs, self.modules, self.sandbox = bugs, tuple(modules), sandbox
        self.limits = Limits(seconds=float(timeout_s))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Put faults into the package that make cases fail."""
        super().reset(seed=seed, options=options)
        known = [fault for module in self.modules for fault in faults(module)]
        drawn: list[Fault] = []
        self.texts, self.failing = {module: source(module) for module in MODULES}, {}
        for place in self.np_random.permutation(len(known)):
            texts, found = _broken((*drawn, known[place]), self.sandbox, self.limits)
            if found.keys() - self.failing.keys():
                drawn.append(known[place])
                self.texts, self.failing = texts, found
            if len(drawn) == self.bugs:
                break
        self._ended = self._solved = False
        return self._report(), {}

    @tool
    def read(self, module: str) -> str:
        """Return the text of a module.

        Args:
            module: the name of the module.
        """
        return self._text(module)

    @tool
    def edit(self, module: str, old: str, new: str) -> str:
        """Replace a piece of a module.

        Args:
            module: the name of the module.
            old: the piece, which is in the module exactly once.
            new: what stands there afterwards.
        """
        text = self._text(module)
        if (count := text.count(old) if old else 0) != 1:
            raise ToolError(f"Nothing was changed: old is {count} times in {module}, and has to be there once.")
        if len(changed := text.replace(old, new)) > _MOST_TEXT:
            raise ToolError(f"Nothing was changed: a module has at most {_MOST_TEXT} characters.")
        self.texts = {**self.texts, module: changed}
        return f"{module} is changed."

    @tool
    def test(self) -> str | Step:
        """Run the cases of all modules; the task is done when they pass."""
        self.failing = failing(self.texts, self.sandbox, self.limits)
        return self._report() if self.failing else self.end("All cases pass.", 1.0, success=True)

    def step(self, action: str) -> Step:
        """Make one call; a reply without a call ends the episode."""
        _ = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        if self._ended:
            return self.outcome(terminated=True, success=self._solved, valid=False, effective=False)
        step = super().step(action)
        self._ended, self._solved = step.terminated, step.info["success"]
        return step

    def oracle(self) -> list[str]:
        """Edit what differs from the original, then test."""
        edits = [called("edit", module=one, old=old, new=new) for one in MODULES for old, new in self._changes(one)]
        return [] if self._ended else [*edits, called("test")]

    def _changes(self, module: str) -> list[tuple[str, str]]:
        """The piece of a module that differs, with lines around it until it is there once, and the original one."""
        mine, right = (text.splitlines(keepends=True) for text in (self.texts[module], source(module)))
        blocks = [one for one in SequenceMatcher(None, mine, right, autojunk=False).get_opcodes() if one[0] != "equal"]
        if not blocks:
            return []
        (_, start, _, first, _), (_, _, end, _, last) = blocks[0], blocks[-1]
        while self.texts[module].count("".join(mine[start:end])) != 1 or start == end:
            if start > 0:
                start, first = start - 1, first - 1
            else:
                end, last = end + 1, last + 1
        return [("".join(mine[start:end]), "".join(right[first:last]))]

    def _text(self, module: str) -> str:
        if module not in self.texts:
            raise ToolError(f"There is no module {module!r}; they are {', '.join(MODULES)}.")
        return self.texts[module]

    def _report(self) -> str:
        """How many cases fail, and the first of those that are not hidden."""
        shown = [text for number, (_, text) in self.failing.items() if number % 2 == 0]
        hidden = sorted({name for number, (name, _) in self.failing.items() if number % 2})
        lines = [f"{len(self.failing)} cases fail.", *shown[:_SHOWN]]
        if len(shown) > _SHOWN:
            lines.append(f"and {len(shown) - _SHOWN} more")
        return "\n".join(lines + [f"Hidden cases fail of {', '.join(hidden)}."] * bool(hidden))


@lru_cache(maxsize=256)
def _broken(drawn: tuple[Fault, ...], kind: str, limits: Limits) -> tuple[dict[str, str], dict[int, tuple[str, str]]]:
    """The modules with these faults, and the cases that fail. The episodes of a group begin with the same ones."""
    texts = {module: source(module) for module in MODULES}
    for fault in sorted(drawn, key=lambda one: (one.line, one.column), reverse=True):
        texts[fault.module] = fault.into(texts[fault.module])
    return texts, failing(texts, kind, limits)
