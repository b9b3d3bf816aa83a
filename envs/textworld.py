"""TextWorld: text adventures played through the package textworld, generated in a wanted size or read from files."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from ragen_envs.common.lines import sanitise

from ragen_verl.env import Step
from ragen_verl.env.arguments import check_whole
from ragen_verl.env.text import FreeTextEnv
from ragen_verl.errors import MissingExtra, RecipeError, adding

__all__ = ["PackagedGame", "TextWorld", "check_installed", "package", "tidy"]

_LONGEST = 300
_PROMPT = re.compile(r"\n>.*\Z", re.DOTALL)
_lock = threading.RLock()


@contextmanager
def package() -> Iterator[ModuleType]:
    """Give the package textworld to one thread at a time.

    The package draws from numpy's global generator when imported, its planner overwrites `sys.argv`, and its parsers
    are shared by all games. Afterwards the process's state is restored.
    """
    with _lock:
        python, array, argv = random.getstate(), np.random.get_state(), sys.argv
        try:
            import textworld

            yield textworld
        finally:
            random.setstate(python)
            np.random.set_state(array)
            sys.argv = argv


def check_installed(name: str, extra: str, modules: Sequence[str]) -> None:
    """Raise MissingExtra unless all `modules` can be found; none is imported. `name` is that of the environment."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise MissingExtra(f"{name} needs {' and '.join(missing)}: run {adding(extra)}.")


class PackagedGame(FreeTextEnv):
    """Base class of the games of the package: a file, the commands that are possible now, and an end.

    A subclass names its file in `choose_file`, opens it in `open_game`, and reads a game's state in `read`. Only
    commands that the game lists as possible reach it, so commands that save, quit or restart do not. A game is the
    state of a C library: a copy, pickled or not, opens its own and repeats the commands made so far.
    """

    longest = 50

    def __init__(self) -> None:
        self._game: Any = None
        self._file: str | None = None
        self._loaded: str | None = None
        self._made: list[str] = []
        self._possible: dict[str, str] = {}
        self._header = self._said = ""
        self._won = self._lost = False
        self._earned = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_game": None, "_loaded": None}

    def choose_file(self) -> str:
        """Return the path of the game that belongs to the seed."""
        raise NotImplementedError

    def open_game(self, textworld: ModuleType, path: str) -> Any:
        """Load the game of a file and return the package's environment."""
        raise NotImplementedError

    def read(self, state: Any, *, first: bool) -> None:
        """Set `_header`, `_said` and `_earned` (the sum of rewards so far) from a state of the game."""
        raise NotImplementedError

    def canonical(self, action: Any) -> str:
        """Return an action as a key of the possible commands."""
        return sanitise(action, _LONGEST).casefold() if isinstance(action, str) else ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Open the game that belongs to the seed, at its beginning."""
        super().reset(seed=seed)
        with package() as textworld:
            self._file = self.choose_file()
            self._made = []
            self._take_in(self._begin(textworld), first=True)
        return self.render(), {}

    def _begin(self, textworld: ModuleType) -> Any:
        if self._game is None:
            self._game = self.open_game(textworld, self._file)
        elif self._loaded != self._file:
            self._game.load(self._file)
        self._loaded = self._file
        self._game.seed(1)  # the interpreter's own randomness, which would use the clock
        return self._game.reset()

    def _take_in(self, state: Any, *, first: bool = False) -> None:
        self._won, self._lost = bool(state["won"]), bool(state["lost"])
        over = self._won or self._lost
        self._possible = {} if over else {command.casefold(): command for command in state["admissible_commands"]}
        self.read(state, first=first)

    def resume(self) -> Any:
        """Return the package's environment; in a copy, replay the episode first. Call it within `package()`."""
        if self._game is None and self._file is not None:
            with package() as textworld:
                self._begin(textworld)
                game: Any = self._game
                for command in self._made:
                    game.step(command)
        return self._game

    def step(self, action: str) -> Step:
        """Do one command; a command that is not possible now changes nothing."""
        _ = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        command = self._possible.get(self.canonical(action))
        if command is None:
            return self._result(0.0, valid=False, effective=False)
        seen, earned = self._said, self._earned
        with package():
            state, _, _ = self.resume().step(command)
            self._made.append(command)
            self._take_in(state)
        return self._result(self._earned - earned, valid=True, effective=self._said != seen)

    def _result(self, reward: float, *, valid: bool, effective: bool) -> Step:
        over = self._won or self._lost
        truncated = not over and len(self._made) >= self.longest
        return self.outcome(
            reward, terminated=over, truncated=truncated, success=self._won, valid=valid, effective=effective
        )

    def admissible_commands(self) -> list[str]:
        """Return the commands that are possible now; [] before the first reset and after the end."""
        return list(self._possible.values())

    def render(self) -> str:
        """Return the task, the result of the last command, and the commands that are possible now."""
        if self._file is None:
            return ""
        lines = [self._header, self._said]
        if self._possible:
            lines.append(f"Admissible commands: {', '.join(self._possible.values())}")
        return "\n".join(lines)

    def random_action(self, rng: np.random.Generator) -> str:
        """Return one of the possible commands, each equally likely; "" after the end."""
        commands = self.admissible_commands()
        return commands[int(rng.integers(len(commands)))] if commands else ""

    def close(self) -> None:
        """End the game; a later step opens it again in the same state."""
        with package():
            if self._game is not None:
                self._game.close()
            self._game = self._loaded = None


def tidy(text: str) -> str:
    """Return the lines of a game's text that are not empty, without control characters and prompt."""
    lines = (sanitise(line) for line in _PROMPT.sub("", f"\n{text}").splitlines())
    return "\n".join(line for line in lines if line)


class TextWorld(PackagedGame):
    """## Description

    A text adventure of a few rooms: find, open, carry and use things as the objective says. Games of Microsoft's
    TextWorld (arXiv 1806.11532) through its package:
    `make add PACKAGE="ragen-verl[textworld]"`, or outside a checkout `pip install "ragen-verl[textworld]"`.

    ## Action Space

    Text: one of the commands listed, such as `open chest` or `go east`, in any case.

    ## Observation Space

    Text: the objective, the result of the last command, and all commands that are possible now.

    ## Starting State

    A game drawn uniformly from `games`, or from `number` games of the wanted size. A game is generated when it is drawn
    for the first time, which takes seconds, and kept. It depends on the seed alone.

    ## Rewards

    The game's points divided by the highest possible number: 1 in total for a game that is won.

    ## Episode End

    Terminates when the game is won (success) or lost; truncates after 100 commands. A command that is not listed is not
    valid and is not counted; a command that shows nothing new is not effective.

    ## Arguments

    - `rooms=3`, `objects=5`, `quest_length=3`: the size of the generated games: 1 to 30 rooms, 1 to 100 objects, 1 to
      20 commands that win the game.
    - `number=100`: how many different games are generated.
    - `first=0`: the number of the first game, so that training and validation can have different games.
    - `cache_dir=None`: the folder where they are kept; by default `ragen_verl/textworld` in the user's cache folder.
    - `games=None`: a folder with games made by `tw-make` (`.z8` beside `.json`), at any depth, to play instead.

    ## Version History

    - v0: first version.
    """

    max_actions = 50
    longest = 100
    instruction = (
        "You are playing a text adventure. Every turn shows what happens and the commands that are possible: answer "
        "with one of them. Reach the objective: that earns up to 1."
    )
    external_arguments = ("games", "cache_dir")

    def __init__(
        self,
        rooms: int = 3,
        objects: int = 5,
        quest_length: int = 3,
        number: int = 100,
        first: int = 0,
        cache_dir: str | None = None,
        games: str | None = None,
    ) -> None:
        super().__init__()
        sizes = {"rooms": (rooms, 1, 30), "objects": (objects, 1, 100), "quest_length": (quest_length, 1, 20)}
        for name, (value, low, high) in {**sizes, "number": (number, 1, 10**6), "first": (first, 0, 10**6)}.items():
            check_whole(f"TextWorld's {name}", value, low, high)
        for name, folder in (("cache_dir", cache_dir), ("games", games)):
            if folder is not None and not isinstance(folder, str):
                raise RecipeError(f"TextWorld's {name} must be the path of a folder, not {folder!r}.")
        if games is not None and (rooms, objects, quest_length, number, first, cache_dir) != (3, 5, 3, 100, 0, None):
            raise RecipeError("TextWorld plays the games of a folder or games it makes: give games alone, or leave it.")
        check_installed("TextWorld", "textworld", ["textworld", "jericho"])
        self._size = (rooms, objects, quest_length)
        self._numbers = range(first, first + number)
        self._cache = cache_dir
        self._files = None if games is None else _game_files(games)
        self._plan: tuple[str, ...] = ()

    def choose_file(self) -> str:
        """Return one of the files, or generate the game of a number."""
        if self._files is not None:
            return self._files[int(self.np_random.integers(len(self._files)))]
        number = self._numbers[int(self.np_random.integers(len(self._numbers)))]
        return str(_make_game(*self._size, number, self._cache))

    def open_game(self, textworld: ModuleType, path: str) -> Any:
        """Start the interpreter."""
        wanted = ("admissible_commands", "policy_commands", "won", "lost", "score", "max_score", "description")
        return textworld.start(path, textworld.EnvInfos(objective=True, **dict.fromkeys(wanted, True)))

    def read(self, state: Any, *, first: bool) -> None:
        """Show the room at first, and later the output of the command."""
        self._header = f"Objective: {sanitise(state['objective'])}"
        self._said = tidy(state["description"] if first else state["feedback"])
        self._earned = (state["score"] or 0) / (state["max_score"] or 1)
        self._plan = tuple(state["policy_commands"] or ())

    def oracle(self) -> list[str]:
        """Return the game's own commands that win from the current state; [] after the end or if it knows none."""
        return list(self._plan) if self._possible else []


def _game_files(folder: str) -> list[str]:
    files = sorted(str(path) for path in Path(folder).expanduser().rglob("*.z8") if path.with_suffix(".json").is_file())
    if not files:
        raise RecipeError(
            f"TextWorld's games must be a folder with .z8 and .json files made by tw-make, not {folder!r}."
        )
    return files


def _make_game(rooms: int, objects: int, quest_length: int, number: int, cache_dir: str | None = None) -> Path:
    """Return the .z8 file of a game of this size and number; generate and compile it if it does not exist.

    Raises:
        RecipeError: the package finds no such game.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ragen_verl" / "textworld"
    folder = home if cache_dir is None else Path(cache_dir).expanduser()
    with package() as textworld:
        version = textworld.__version__
        path = folder / f"textworld-{version}-rooms{rooms}-objects{objects}-quest{quest_length}-{number}.z8"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as workshop:
                options = textworld.GameOptions()
                options.path, options.seeds = str(Path(workshop) / "game.z8"), number
                options.nb_rooms, options.nb_objects, options.quest_length = rooms, objects, quest_length
                try:
                    textworld.make(options)
                except Exception as error:  # the package raises many kinds, also plain Exception
                    raise RecipeError(
                        f"TextWorld can make no game of {rooms} rooms, {objects} objects and a quest of {quest_length} "
                        f"commands ({type(error).__name__}: {error}): change one of them."
                    ) from error
                for suffix in (".json", ".z8"):  # the .z8 last, so that its presence means that both exist
                    os.replace(Path(workshop) / f"game{suffix}", path.with_suffix(suffix))
    return path
