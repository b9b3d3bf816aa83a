"""reasoning-gym's tasks, one question in each episode: "reasoning-gym:countdown"."""

from __future__ import annotations

import ast
import re
from typing import Any

from ragen_envs.adapters.external import QUESTION, ExternalEnv, cut, need, reject, unknown
from ragen_envs.adapters.randomness import GlobalRandomness

from ragen_verl.env.core import Step
from ragen_verl.errors import BadEnvKwargs

__all__ = ["ReasoningGymEnv", "harmless"]

_MOST_CHARACTERS = 20_000
_OURS = ("seed", "size")

# Tasks whose scoring evaluates the answer as Python, directly or through sympy; found by reading the package
# (reasoning-gym 0.1.25, calls of eval and parse_expr on the answer). Their answers are checked by a filter first.
_LITERAL = ("string_insertion", "spiral_matrix", "binary_matrix", "n_queens")
_SUM = ("countdown", "puzzle24")
_FORMULA = ("simple_integration", "intermediate_integration", "polynomial_multiplication")
_HUGE = re.compile(r"[eE][+-]?\d{4,}")
_ROWS = re.compile(r"[\w\s.#-]*")  # only names and numbers, so that nothing can be called
_SUM_ONLY = re.compile(r"[\d\s+\-*/()]{1,200}")
_TOKEN = re.compile(r"\d+(?:\.\d*)?|\*\*|[-+*/^()\s]|[A-Za-z]+")
_FUNCTIONS = {"sin", "cos", "tan", "sec", "csc", "cot", "sinh", "cosh", "tanh", "asin", "acos", "atan", "exp", "log"}
_WORDS = _FUNCTIONS | {"sqrt", "pi", "Abs", "ln", "e"}
_BIG_POWER = re.compile(r"(?:\*\*|\^)\s*\(?\s*-?\s*\d{3,}")
_POWER_OF_MUCH = re.compile(r"[\d)]\s*(?:\*\*|\^)\s*(?!\(?\s*-?\s*[0-4]\s*(?![\d.]))")


class ReasoningGymEnv(ExternalEnv):
    """## Description

    A procedural task of reasoning-gym (Apache 2.0), an extra: more than a hundred families of questions whose answers
    are scored by a program. An episode is one question and one answer.

    ## Action Space

    Free text: the answer alone. A text of more than 20,000 characters is cut.

    ## Observation Space

    Text: the question.

    ## Starting State

    The first question of the task's dataset with the group's seed. Nothing is random afterwards. Some tasks draw from
    the process's global generators, so each environment has a stream of its own.

    ## Rewards

    The task's score, 0 to 1. Where the task would evaluate the answer as Python, the answer is scored only if it is a
    literal, an arithmetic expression or a formula of ordinary size; else it earns 0 and counts as not valid.

    ## Episode End

    After the first answer that is not empty. Solved: a score of 1 or more.

    ## Arguments

    - `success_return=1.0`: the score from which an answer counts as right.
    - all other arguments configure the task, as in `reasoning_gym.create_dataset`.

    ## Version History

    - v0: first version.
    """

    max_actions = 1

    def __init__(
        self, task: str, *, success_return: float | None = 1.0, max_actions: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(f"reasoning-gym:{task}", max_actions, success_return)
        package = need("reasoning_gym", "reasoning-gym", "reasoning-gym")
        known = package.factory.DATASETS
        if task not in known:
            raise unknown(task, known, "reasoning-gym")
        if taken := [key for key in _OURS if key in kwargs]:
            raise BadEnvKwargs(f"{self.name}: {taken[0]} is set by the rollout, so leave it out.")
        self.name_of_task = task
        self.kwargs = kwargs
        self.randomness = GlobalRandomness()
        self.entry: dict[str, Any] = {}
        self.instruction = QUESTION
        self._data: Any = self._dataset(0)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data": None}  # some datasets are large, or hold functions

    def _dataset(self, seed: int) -> Any:
        package = need("reasoning_gym", "reasoning-gym", "reasoning-gym")
        try:
            with self.randomness():
                return package.create_dataset(self.name_of_task, seed=seed, size=1, **self.kwargs)
        except TypeError as error:
            raise BadEnvKwargs(f"{self.name} does not take these arguments: {error}.") from error
        except (AssertionError, ValueError) as error:
            raise reject("reasoning-gym", f"{self.name_of_task} does not take these values: {error}.") from error

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw the question of the group's seed."""
        super().reset(seed=seed, options=options)
        self.randomness.seed(self.seed)
        self._data = self._dataset(self.seed)
        with self.randomness():
            self.entry = self._data[0]
        return self.begin(cut(str(self.entry["question"])))

    def step(self, action: str) -> Step:
        """Score an answer; an empty one leaves the question open."""
        text = action.strip()[:_MOST_CHARACTERS] if isinstance(action, str) else ""
        if self.ended() or not text:
            return self.idle(valid=bool(text))
        score, valid = 0.0, harmless(self.name_of_task, text, str(self.entry["answer"]))
        if valid:
            try:
                self._data = self._data or self._dataset(self.seed)
                with self.randomness():
                    score = self._data.score_answer(text, self.entry)
            except Exception:  # the scoring did not expect this form of answer, so the answer is wrong
                score = 0.0
        return self.after(self.render(), score, terminated=True, truncated=False, valid=valid)

    def oracle(self) -> list[str]:
        """Return the task's own answer; [] where it gives none, and where the episode is over."""
        answer = self.entry.get("answer")
        return [] if any(self._over) or not answer or self.seed is None else [str(answer)]


def harmless(task: str, answer: str, right: str) -> bool:
    """Whether it is safe to score this answer: a task that evaluates answers must not get a program.

    The right answer always passes.
    """
    if answer == right:
        return True
    if _HUGE.search(answer):
        return False
    if task in _LITERAL:
        return bool(_ROWS.fullmatch(answer)) or _is_literal(answer)
    if task in _SUM:
        return bool(_SUM_ONLY.fullmatch(answer)) and "**" not in answer
    if task in _FORMULA:
        return _is_formula(answer)
    return True


def _is_literal(answer: str) -> bool:
    try:
        ast.literal_eval(answer)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return False
    return True


def _is_formula(answer: str) -> bool:
    if len(answer) > 500 or _BIG_POWER.search(answer) or _POWER_OF_MUCH.search(answer):
        return False
    position = 0
    while position < len(answer):
        token = _TOKEN.match(answer, position)
        if token is None or (token[0].isalpha() and len(token[0]) > 1 and token[0] not in _WORDS):
            return False
        position = token.end()
    return len(re.findall(r"[\d)]\s*(?:\*\*|\^)", answer)) <= 2  # no towers of powers
