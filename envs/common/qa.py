"""`QuestionAnswer`, the base class of question-answer environments: attempts, the falling reward and the text."""

from __future__ import annotations

from typing import Any

import numpy as np
from ragen_envs.common.answers import LONGEST

from ragen_verl.env import Step
from ragen_verl.env.arguments import check_whole
from ragen_verl.env.text import FreeTextEnv

__all__ = ["QuestionAnswer"]


class QuestionAnswer(FreeTextEnv):
    """One question per episode and a number of attempts; a right answer at attempt k (from 0) earns 1 / 2^k.

    A subclass gives `draw()`, which returns (question, true answer), and `judge(answer)`, which returns True, False,
    or None for a text that is no answer, which uses up no attempt. The retry reward is RAGEN's (arXiv 2504.20073).

    Args:
        attempts: answers that are judged before the episode ends; also the budget of actions.

    Raises:
        RecipeError: `attempts` is not an integer from 1 to 100.
    """

    def __init__(self, attempts: int = 5) -> None:
        check_whole(f"{type(self).__name__}'s attempts", attempts, 1, 100)
        self.attempts = self.max_actions = attempts
        self.question = self.truth = ""
        self._wrong = 0
        self._solved = False

    def draw(self) -> tuple[str, str]:
        """Return a question and its true answer; randomness comes from `self.np_random` or `self.seed`."""
        raise NotImplementedError

    def judge(self, answer: str) -> bool | None:
        """Tell whether `answer` is right; None if it is no answer."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw a question."""
        super().reset(seed=seed)
        self.question, self.truth = self.draw()
        self._wrong, self._solved = 0, False
        return self.render(), {}

    def step(self, action: str) -> Step:
        """Judge one answer; a text that is no answer uses up no attempt."""
        _ = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        readable = isinstance(action, str) and 0 < len(action) <= LONGEST and bool(action.strip())
        verdict = self.judge(action) if readable else None
        if verdict is None or self._over():
            return self._result(0.0, valid=verdict is not None, effective=False)
        reward = 0.5**self._wrong if verdict else 0.0
        self._solved = verdict
        self._wrong += not verdict
        return self._result(reward, valid=True, effective=True)

    def _result(self, reward: float, *, valid: bool, effective: bool) -> Step:
        return self.outcome(
            reward,
            terminated=self._over(),
            success=self._solved,
            valid=valid,
            effective=effective,
        )

    def _over(self) -> bool:
        return self._solved or self._wrong >= self.attempts

    def render(self) -> str:
        """Return the question, with a note after a wrong answer."""
        if self._solved:
            return "Correct."
        if not self._wrong:
            return self.question
        return f"{self.question}\nWrong answers so far: {self._wrong}. Check your reasoning and answer again."

    def oracle(self) -> list[str]:
        """Return the true answer; [] once the episode is over."""
        return [] if self._over() else [self.truth]

    def random_action(self, rng: np.random.Generator) -> str:
        """Return an answer that does not depend on the question: a number from 0 to 99."""
        return str(int(rng.integers(100)))
