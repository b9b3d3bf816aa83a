"""ALFWorld: household tasks as text, played through the packages alfworld and textworld."""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from ragen_envs.household.env import canonical, check_tasks
from ragen_envs.textworld import PackagedGame, check_installed, package, tidy

from ragen_verl.errors import RecipeError

__all__ = ["ALFWorld", "games"]

#: Split -> its folder in the data.
_FOLDERS = {
    "train": "train",
    "eval_in_distribution": "valid_seen",
    "eval_out_of_distribution": "valid_unseen",
}
_REWARD = 10.0
_TASK = re.compile(r"Your task is to: *(.*)")
_SOLVABLE = re.compile(r'"solvable"\s*:\s*true')
#: Games whose environment no longer exists. Each holds a copy of the planner's C library, which cannot be unloaded
#: safely, so the games are used again.
_idle: list[Any] = []
_games: dict[Path, tuple[str, ...]] = {}
_games_lock = threading.Lock()


class ALFWorld(PackagedGame):
    """## Description

    Household tasks in rooms of ALFRED, as text: ALFWorld (arXiv 2010.03768) with the rules of RAGEN-2 (arXiv
    2604.06268). Games and their logic come from the package:
    `make add PACKAGE="ragen-verl[alfworld]"`, or outside a checkout `pip install "ragen-verl[alfworld]"`.
    The package builds a planner, for which it needs a C++ compiler and cmake. `alfworld-download` fetches its data. For
    a household that needs neither see `Household-v0`.

    ## Action Space

    Text: one of the commands listed, such as `go to fridge 1`, `take apple 1 from fridge 1`, `heat apple 1 with
    microwave 1`, `move apple 1 to shelf 2` (also `put apple 1 in/on shelf 2`), in any case.

    ## Observation Space

    Text: the task, the result of the last command, and all commands that are possible now.

    ## Starting State

    A solvable game drawn uniformly from the split; it depends on the seed alone. Names have the numbers of the games,
    which are never shuffled.

    ## Rewards

    10 for doing the task, 0 otherwise.

    ## Episode End

    Terminates when the task is done (success); truncates after 50 commands. A command that is not listed is not valid
    and is not counted; a command that shows nothing new is not effective.

    ## Arguments

    - `split="train"`: "train", "eval_in_distribution" (rooms as in training) or "eval_out_of_distribution".
    - `tasks=None`: a list of task types, None for all six: pick_and_place_simple, look_at_obj_in_light,
      pick_clean_then_place_in_recep, pick_heat_then_place_in_recep, pick_cool_then_place_in_recep,
      pick_two_obj_and_place.
    - `data_dir=None`: the folder with json_2.1.1; by default the environment variable ALFWORLD_DATA, or
      ~/.cache/alfworld, where `alfworld-download` puts it.

    ## Version History

    - v0: first version. Unlike in RAGEN-2, the choice of the game does not use a global generator.
    """

    max_actions = 50
    longest = 50
    instruction = (
        "You are in a room and have a task to do. Things are in or on furniture, and what is closed must be opened to "
        "be looked into. You carry one thing at a time. Every turn shows what you see and the commands that are "
        "possible: answer with one of them. Doing the task earns 10."
    )
    external_arguments = ("data_dir",)

    def __init__(
        self,
        split: Literal["train", "eval_in_distribution", "eval_out_of_distribution"] = "train",
        tasks: Sequence[str] | None = None,
        data_dir: str | None = None,
    ) -> None:
        super().__init__()
        self._return: weakref.finalize | None = None
        if split not in _FOLDERS:
            raise RecipeError(f"ALFWorld's split must be one of {', '.join(_FOLDERS)}, not {split!r}.")
        types = check_tasks("ALFWorld", tasks)
        if data_dir is not None and not isinstance(data_dir, str):
            raise RecipeError(f"ALFWorld's data_dir must be the path of a folder, not {data_dir!r}.")
        check_installed("ALFWorld", "alfworld", ["alfworld", "textworld", "jericho", "fast_downward"])
        root = Path(data_dir or os.environ.get("ALFWORLD_DATA") or "~/.cache/alfworld").expanduser()
        folder = root / "json_2.1.1" / _FOLDERS[split]
        if not folder.is_dir():
            raise RecipeError(
                f"ALFWorld's data are not in {root} ({folder.relative_to(root)} is missing): run alfworld-download, or "
                "set ALFWORLD_DATA or data_dir to their folder."
            )
        self._files = tuple(path for path in games(folder) if Path(path).parents[1].name.split("-")[0] in types)
        if not self._files:
            raise RecipeError(f"ALFWorld has no solvable games of {', '.join(types)} in {folder}: choose other tasks.")

    def choose_file(self) -> str:
        """Return one of the split's games."""
        return self._files[int(self.np_random.integers(len(self._files)))]

    def open_game(self, textworld: ModuleType, path: str) -> Any:
        """Load the game into a planner that no other instance uses, with names instead of ALFRED's identifiers."""
        if _idle:
            game = _idle.pop()
            game.load(path)
        else:
            from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

            infos = textworld.EnvInfos(admissible_commands=True, won=True, lost=True)
            game = textworld.start(path, infos, wrappers=[AlfredDemangler])
        self._return = weakref.finalize(self, _idle.append, game)
        self._return.atexit = False
        return game

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_return": None}

    def close(self) -> None:
        """Give the planner back; a later step opens the game again in the same state."""
        with package():
            if self._return is not None:
                self._return()
            self._game = self._loaded = self._return = None

    def read(self, state: Any, *, first: bool) -> None:
        """Keep the task from the game's first text, and show the rest."""
        text = tidy(state["feedback"])
        if first:
            task = _TASK.search(text)
            self._header = f"Your task is to: {task[1]}" if task else ""
            lines = text.splitlines()
            text = "\n".join(line for line in lines if not line.startswith(("-=", "Your task is to:")))
        self._said = text
        self._earned = _REWARD * self._won

    def canonical(self, action: Any) -> str:
        """Read "put .. in/on .." as "move .. to .." too."""
        return canonical(action)

    def oracle(self) -> list[str]:
        """Return a plan of the game's own planner from the current state; [] after the end."""
        if not self._possible:
            return []
        with package():
            game = self.resume().unwrapped
            return list(game._pddl_state.replan(game._entity_infos))  # as `policy_commands` would show at every step


def games(folder: Path) -> tuple[str, ...]:
    """Return the solvable games below a folder in a fixed order, as alfworld chooses them; read once per process.

    Games with sliced or movable things, and games that are not marked as solvable, are left out.
    """
    with _games_lock:
        if folder not in _games:
            found = sorted(path for path in folder.rglob("game.tw-pddl") if (path.parent / "traj_data.json").is_file())
            kept = [path for path in found if not re.search("movable|Sliced", str(path.relative_to(folder)))]
            _games[folder] = tuple(str(path) for path in kept if _SOLVABLE.search(path.read_text(encoding="utf-8")))
        return _games[folder]
