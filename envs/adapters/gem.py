"""gem's games and questions, by the ids of its registry: "gem:game:GuessTheNumber-v0-easy"."""

from __future__ import annotations

import inspect
import logging
from functools import cache
from types import ModuleType
from typing import Any

from ragen_envs.adapters.external import (
    MOST_ACTIONS,
    QUESTION,
    ExternalEnv,
    cut,
    need,
    needs_nltk,
    one_line,
    reject,
    sendable,
    unknown,
)
from ragen_envs.adapters.randomness import GlobalRandomness
from ragen_envs.adapters.reasoning_gym import harmless

from ragen_verl.env.core import Step
from ragen_verl.errors import BadEnvKwargs, MissingExtra

__all__ = ["GemEnv"]

_MOST_CHARACTERS = 10_000
_LONGEST_FORMULA = 500
_ALMOST = 1e-6  # ten times 0.1 is a little less than 1
_GAMES, _PUZZLES, _MATHS, _QA = "gem.envs.game_env.", "gem.envs.reasoning_gym", "gem.envs.math_env", "gem.envs.qa_env"
_REFUSED = {
    "gem.envs.code_env": "scores programs by running them on this machine, which an adapter does not do",
    "gem.envs.math_visual_env": "shows images, and observations are texts here",
}
# The registered forms of two ids lack an argument. Each reset draws the value again, so any value serves here.
_LACKING = {"game:FifteenPuzzle-v0-random": {"num_rows": 2}, "game:Crosswords-v0-random": {"hardcore": False}}
_EPISODE = ("idx", "data", "answer", "first_obs")


class GemEnv(ExternalEnv):
    """## Description

    An environment of gem (gem-llm, Apache 2.0) in which one agent reads and writes texts: its games, and the questions
    of reasoning-gym (`rg:`) and of datasets (`math:`, `logic:`, `qa:`, `eval:`), which are downloaded from the Hugging
    Face hub. Word games use NLTK's data. Environments of programs and images are refused.

    ## Action Space

    Free text in the form that the game asks for: in `\\boxed{}`, or in `<answer>` tags for `qa:`. A text without them
    is put in them. A text of more than 10,000 characters is cut.

    ## Observation Space

    Text: the game's reply to the last action and its present state. The rules of the game are the instruction.

    ## Starting State

    `reset(seed=seed)` of the environment. It draws from Python's and numpy's global generators, so each environment has
    a stream of its own (`randomness.GlobalRandomness`), re-seeded by seed and rollout index after the reset. Later
    draws of a game differ between rollouts: new tiles in 2048, the mines in Minesweeper, which are laid at the first
    reveal.

    ## Rewards

    Those of the package: 0 to 1 over an episode, often a share for each part that was solved. A question earns the
    score of the answer. Where the package would evaluate an answer as Python, it is scored only if it is no program
    (`reasoning_gym.harmless`). Mathematics is compared as text and by sympy, but not by math-verify, which gem uses as
    its last attempt: a set or a matrix in another notation than expected earns 0.

    ## Episode End

    That of the package: the solution, the limit of turns, or the first answer to a question. A text that a game cannot
    read ends it with 0 (gem gives -0.1; here the recipe's `format_penalty` sets that cost). A move against the rules
    earns 0 and costs a turn. Both count as not valid, but some games hide the reason at their last turn. Solved: the
    game ended by itself with rewards of 1, or an answer scored 1.

    ## Arguments

    - `success_return=None`: the sum of rewards from which an episode counts as solved; None: as described above.
    - `max_actions=None`: the budget; default: the game's limit of turns, at most 200; 1 for a question.
    - all other arguments are passed to `gem.make`, for example `dataset=`, which replaces a download.

    ## Version History

    - v0: first version.
    """

    # A room of the larger Sokoban takes seconds to draw, and sympy cannot be stopped.
    isolation = "process"
    max_actions = 1

    def __init__(
        self, name: str, /, *, success_return: float | None = None, max_actions: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(f"gem:{name}", max_actions, success_return)
        known = _package().ENV_REGISTRY
        if name not in known:
            raise unknown(name, known, "gem")
        self.id, self.kwargs = name, kwargs
        self._module = str(known[name].entry_point).partition(":")[0]
        self._asks = not self._module.startswith(_GAMES)
        self.randomness = GlobalRandomness()
        self.game = self._build()
        self._budget_given = max_actions is not None
        self._set_budget()

    def __getstate__(self) -> dict[str, Any]:
        if not self._asks:
            return self.__dict__  # the questions' source may hold functions, so a copy builds its own
        return {**self.__dict__, "game": {key: vars(self.game)[key] for key in _EPISODE if key in vars(self.game)}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._asks:
            self.game = self._build()
            vars(self.game).update(state["game"])

    def _build(self) -> Any:
        if self._module in _REFUSED:
            raise reject("gem", f"{self.id} {_REFUSED[self._module]}.")
        if self._asks and self._module not in (_PUZZLES, _MATHS, _QA):
            raise reject("gem", f"{self.id} is of a kind that this adapter does not play.")
        spec = _package().ENV_REGISTRY[self.id]
        kind = getattr(_need(self._module), spec.entry_point.partition(":")[2])
        accepted = set(inspect.signature(kind).parameters) - {"_", "kwargs", "name", "use_mp"}
        if unknown := sorted(set(self.kwargs) - accepted):  # the package itself swallows them
            raise BadEnvKwargs(
                f"{self.name} does not take {', '.join(map(repr, unknown))}; it accepts {', '.join(sorted(accepted))}."
            )
        own: Any = {"use_mp": False} if self._module == _MATHS else _LACKING.get(self.id, {})
        try:
            with GlobalRandomness()():
                return _package().make(self.id, **{**own, **self.kwargs})
        except Exception as error:
            sentence = one_line(error, 200)
            if type(error) is LookupError:  # NLTK raises this class itself, not a subclass
                reason = needs_nltk("words")
            elif self._module in (_MATHS, _QA) and "dataset" not in self.kwargs:
                data = self.kwargs.get("dataset_name", spec.kwargs.get("dataset_name"))
                reason = f"needs the dataset {data} of the Hugging Face hub, which could not be loaded ({sentence})."
            else:
                reason = f"cannot be built ({sentence})."
            raise reject("gem", f"{self.id} {reason}") from error

    def _set_budget(self) -> None:
        turns = getattr(self.game, "max_turns", None)
        if not self._budget_given and isinstance(turns, int) and turns > 0:
            self.max_actions = min(turns, MOST_ACTIONS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start with the group's seed, then switch to the generator of this rollout."""
        super().reset(seed=seed, options=options)
        if self._module == _PUZZLES:
            self.game.idx = 0  # it counts episodes, and draws new questions when all have been asked
        with self.randomness():
            text, info = self.game.reset(seed=self.seed % 2**32)
        self.randomness.seed(self.dynamics)
        if self._asks:
            self.instruction = QUESTION
            return self.begin(cut(str(text)))
        self._set_budget()
        self.instruction = cut(text.strip())
        return self.begin(cut(info.get("suffix") or self.game.get_task_suffix()))

    def step(self, action: str) -> Step:
        """Pass a text to the game, or score an answer."""
        if self.ended() or not isinstance(action, str):
            return self.idle(valid=isinstance(action, str))
        text = self._enclosed(sendable(action, _MOST_CHARACTERS))
        if self._asks:
            score, valid = self._score(text)
            done = score >= 1 - _ALMOST
            return self.after(self.render(), score, terminated=True, truncated=False, success=done, valid=valid)
        try:
            with self.randomness():
                said, reward, terminated, truncated, info = self.game.step(text)
        except Exception:
            return self.broken()
        valid = not isinstance(reward, _Invalid)
        # These do not solve it: a last share at the limit, a mine after the last field, a word that was found twice.
        solved = terminated and not truncated and reward > 0 and self._sum + reward >= 1 - _ALMOST
        shown = cut("\n".join(filter(None, [said.strip(), info.get("suffix")])))
        earned = reward if valid else max(reward, 0.0)
        return self.after(shown, earned, terminated=terminated, truncated=truncated, success=solved, valid=valid)

    def oracle(self) -> list[str]:
        """Return the answer to the question; [] for a game, and where the episode is over."""
        truth = self._truth() if self._asks and self.seed is not None and not any(self._over) else []
        return [self._enclosed(one) for one in truth[:1]]

    def _tagged(self) -> bool:
        return self._module == _QA and "tagged" in self.game.extractor.__name__

    def _enclosed(self, text: str) -> str:
        if self._tagged():
            return text if "<answer>" in text else f"<answer>{text}</answer>"
        return text if "\\boxed" in text else f"\\boxed{{{text.strip()}}}"

    def _truth(self) -> list[str]:
        right = self.game.data["answer"] if self._module == _PUZZLES else self.game.answer
        return [str(one) for one in (right if isinstance(right, list) else [right]) if one is not None]

    def _score(self, text: str) -> tuple[float, bool]:
        """Return the score of an answer, and whether the answer could be read and is safe to score."""
        parsing = _need("gem.utils.parsing")
        answer = (parsing.extract_last_tagged_answer if self._tagged() else parsing.extract_last_boxed_answer)(text)
        maths, truth = self._module == _MATHS, self._truth()
        if answer is None or (maths and len(answer) > _LONGEST_FORMULA and answer not in truth):
            return 0.0, False
        if self._module == _PUZZLES and not harmless(self.game.name, answer, "".join(truth[:1])):
            return 0.0, False
        try:
            with self.randomness():
                if maths:  # fast=True, since the other way uses signals, which work only in a main thread
                    return float(_grader().boxed_reward_fn(text, truth, fast=True)[1]), True
                return float(self.game.step(text)[1]), True
        except Exception:  # the scoring did not expect this form of answer, so the answer is wrong
            return 0.0, True


class _Invalid(float):
    """A reward for a move that was refused; the number alone could also belong to a move that earned nothing."""

    def __add__(self, other: float) -> _Invalid:
        return _Invalid(float(self) + other)


def _need(module: str) -> ModuleType:
    try:
        return need(module, "gem", "gem")
    except MissingExtra as error:  # no extra can hold gem-llm itself: its pins contradict verl's
        raise MissingExtra(f"{error} Then run pip install --no-deps gem-llm==0.1.0.") from error


@cache
def _package() -> ModuleType:
    """Import gem's registry; mark its rewards for moves that were refused."""
    root = logging.getLogger()
    with GlobalRandomness()():  # for its lock as well
        level, handlers = root.level, list(root.handlers)
        try:
            registration = _need("gem.envs.registration")
        finally:  # importing it configures logging for the whole process
            root.handlers[:] = handlers
            root.setLevel(level)
    rewards = _need("gem.utils.constants").LanguageGameReward
    for name in ("invalid_action_reward", "format_error_reward"):
        setattr(rewards, name, _Invalid(getattr(rewards, name)))
    return registration


@cache
def _grader() -> Any:
    """Import gem's grader of mathematics, restricted to formulas of ordinary size."""
    grader: Any = _need("gem.utils.math_grader")
    evaluate = grader._sympy_parse
    # sympy evaluates its input as Python. None makes the caller raise, which counts as "not equal".
    grader._sympy_parse = lambda text: evaluate(text) if harmless("simple_integration", text, "") else None
    return grader
