"""TextArena's single-player games: "textarena:Wordle-v0"."""

from __future__ import annotations

import inspect
import platform
from typing import Any

from ragen_envs.adapters.external import (
    MOST_ACTIONS,
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

from ragen_verl.env.core import Step
from ragen_verl.errors import BadEnvKwargs

__all__ = ["TextArenaEnv"]

_VARIANTS = ("-raw", "-train")
_DEFAULT_ACTIONS = 50
_MOST_CHARACTERS = 10_000
_ERRORS_ALLOWED = 10**9
_PLAYED = "PLAYER_ACTION"


class TextArenaEnv(ExternalEnv):
    """## Description

    A single-player game of TextArena (MIT licence), an extra. Games that use a language model (TwentyQuestions) need
    its key; games with words of NLTK (Wordle, Hangman, WordLadder, WordSearch) download NLTK's data at their first use.

    ## Action Space

    Free text in the form that the game asks for, usually in square brackets. A text without any bracket is put in
    brackets. A text of more than 10,000 characters is cut.

    ## Observation Space

    Text: the game's messages since the last action, with the board. The rules of the game are the instruction.

    ## Starting State

    `reset(seed=seed)` of the game. It draws from Python's global generator, so each game has a stream of its own
    (`randomness.GlobalRandomness`), seeded by the group's seed for the reset, and by seed and rollout index afterwards.

    ## Rewards

    0 until the end, then the game's reward: 1 for a win; otherwise many games give the share that was solved.

    ## Episode End

    That of the game. An invalid move never ends it: it earns 0, counts as no turn, and the observation says why.
    Solved: a reward of 1 or more. A text that makes the game raise truncates the episode.

    ## Arguments

    - `success_return=1.0`: the reward from which an episode counts as solved.
    - `max_actions=None`: the budget; default: the game's limit of turns plus one, at most 200, or 50 without a limit.
    - all other arguments are passed to `textarena.make`.

    ## Version History

    - v0: first version.
    """

    def __init__(
        self, name: str, *, success_return: float | None = 1.0, max_actions: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(f"textarena:{name}", max_actions, success_return)
        package = need("textarena", "textarena", "textarena")
        known = package.envs.registration.ENV_REGISTRY
        bare = name
        for variant in _VARIANTS:
            bare = bare.removesuffix(variant)
        if bare not in known:
            raise unknown(name, [one for one in known if not one.endswith(_VARIANTS)], "TextArena")
        self.randomness = GlobalRandomness()
        self.game = self._build(package, f"{bare}-raw" if f"{bare}-raw" in known else bare, kwargs)
        # Some games print at every attempt to make a puzzle. Only their module gets a silent `print`.
        vars(inspect.getmodule(type(self.game)))["print"] = _silent
        self._board = ""
        self._budget_given = max_actions is not None
        if max_actions is None:
            self.max_actions = self._budget(getattr(self.game, "max_turns", None))

    def _build(self, package: Any, id: str, kwargs: dict[str, Any]) -> Any:
        try:
            with self.randomness():
                game = package.make(id, **kwargs)
        except TypeError as error:
            raise BadEnvKwargs(f"{self.name} does not take these arguments: {error}.") from error
        except LookupError as error:
            data = needs_nltk("words averaged_perceptron_tagger_eng")
            raise reject("textarena", f"{self.name} {data}") from error
        except SyntaxError as error:
            raise reject(
                "textarena",
                f"{self.name} needs a newer Python than {platform.python_version()}, for which its module does not "
                f"compile ({error.msg}): choose another game.",
            ) from error
        except ImportError as error:
            raise reject("textarena", f"{self.name} needs another package ({one_line(error, 200)}).") from error
        except Exception as error:
            raise reject("textarena", f"{self.name} cannot be built ({one_line(error, 300)}).") from error
        # the source shows the kind of game; a reset would too, but takes minutes in some games
        if "SinglePlayerState" not in inspect.getsource(inspect.getmodule(type(game))):
            raise reject("textarena", f"{self.name} is a game for several players: choose one for a single player.")
        return game

    @staticmethod
    def _budget(turns: Any) -> int:
        # games check their limit before they count a turn, so the turn after the last one ends them
        return min(turns + 1, MOST_ACTIONS) if isinstance(turns, int) and turns > 0 else _DEFAULT_ACTIONS

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start the game with the group's seed, then switch to the generator of this rollout."""
        super().reset(seed=seed, options=options)
        self.randomness.seed(self.seed)
        with self.randomness():
            self.game.reset(num_players=1, seed=self.seed)
        self.randomness.seed(self.dynamics)
        state = self.game.state
        state.error_allowance = _ERRORS_ALLOWED
        if not self._budget_given:
            self.max_actions = self._budget(state.max_turns)
        _, messages = self.game.get_observation()
        self._board = ""
        prompts = [text for kind, text in map(_kind_and_text, messages) if kind == "PROMPT"]
        self.instruction = cut("\n".join(prompts).strip())
        return self.begin(self._said(messages) or "The game begins.")

    def step(self, action: str) -> Step:
        """Pass a text to the game."""
        if self.ended() or not isinstance(action, str):
            return self.idle(valid=isinstance(action, str))
        text = sendable(action, _MOST_CHARACTERS)
        if "[" not in text:
            text = f"[{text.strip()}]"
        state = self.game.state
        errors = state.error_count
        try:
            with self.randomness():
                done, _ = self.game.step(text)
                _, messages = self.game.get_observation()
        except Exception:
            return self.broken()
        valid = done or state.error_count <= errors
        reward = (state.rewards or {}).get(0) if done else 0.0
        said = self._said(messages)
        if done:
            said = "\n".join(filter(None, [said, str(state.game_info[0].get("reason") or "")]))
        return self.after(said or self.render(), reward, terminated=done, truncated=False, valid=valid, effective=True)

    def _said(self, messages: list[Any]) -> str:
        """Return the messages of the game itself, without its prompt and the player's own texts.

        If there is no board among them, as after an invalid move, the last board is added.
        """
        said = list(map(_kind_and_text, messages))
        own = [text.strip() for kind, text in said if kind not in ("PROMPT", _PLAYED)]
        boards = [text.strip() for kind, text in said if kind == "GAME_BOARD"]
        if boards:
            self._board = boards[-1]
        elif self._board:
            own.append(self._board)
        return cut("\n".join(own))


def _kind_and_text(message: Any) -> tuple[str, str]:
    """Return the kind of a message, and its text.

    Countdown, Cryptarithm and Slitherlink of 0.7.4 store the player's action with its fields in a wrong order: a text
    is in place of the kind.
    """
    _, text, kind = message
    return getattr(kind, "name", _PLAYED), str(text)


def _silent(*values: Any, **options: Any) -> None:
    """Replaces `print`."""
