"""Household: find things in a room, treat them, and put them in the wanted place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from ragen_envs.common.lines import sanitise
from ragen_envs.common.tables import check_split
from ragen_envs.household.world import TASKS, House, Split, Task, a, furnish, in_or_on, kind, next_command, tasks_of

from ragen_verl.env import Step
from ragen_verl.env.arguments import check_switch
from ragen_verl.env.text import FreeTextEnv
from ragen_verl.errors import RecipeError

__all__ = ["Household", "canonical", "check_tasks"]

_MAX_STEPS = 50
_REWARD = 10.0
_LONGEST = 200
_PUT = re.compile(r"(?:put|place) (.+) (?:in/on|into|onto|in|on) (.+)")
_TURN_ON = re.compile(r"(?:turn|switch) on (.+)")

#: Task type -> wordings; {thing} has its article, {place} its preposition.
_GOALS = {
    "pick_and_place_simple": ("leave {thing} {place}", "find {thing}, its place is {place}"),
    "look_at_obj_in_light": ("hold {thing} under a lit {target}", "take {thing} to a {target} and switch that on"),
    "pick_clean_then_place_in_recep": ("wash {thing} and leave it {place}", "leave {thing} {place}, but washed"),
    "pick_heat_then_place_in_recep": ("warm {thing} up and leave it {place}", "leave {thing} {place}, but hot"),
    "pick_cool_then_place_in_recep": ("chill {thing} and leave it {place}", "leave {thing} {place}, but cold"),
    "pick_two_obj_and_place": ("leave two {things} together {place}", "find two {things}, both belong {place}"),
}
_DONE = {
    "open": "You open the {name}.",
    "close": "You close the {name}.",
    "take": "You take the {name} from the {place}.",
    "move": "You put the {name} {where} the {place}.",
    "use": "The {name} is lit now.",
    "clean": "You clean the {name} with the {place}.",
    "heat": "You heat the {name} with the {place}.",
    "cool": "You cool the {name} with the {place}.",
}


class Household(FreeTextEnv):
    """## Description

    A room with furniture and things, and a task such as "wash a plate and leave it on a shelf". It has the six task
    types, the commands and the style of ALFWorld's text games (arXiv 2010.03768), but its own rooms, things and texts,
    so that it needs no data. For the original games see `ALFWorld-v0`.

    ## Action Space

    Text, one command: `go to fridge 1`, `open fridge 1`, `close fridge 1`, `take apple 1 from fridge 1`, `move apple 1
    to shelf 2` (also `put apple 1 in/on shelf 2`), `clean|heat|cool apple 1 with sinkbasin 1|microwave 1|fridge 1`,
    `use desklamp 1` (also `turn on`), `examine apple 1`, `inventory`, `look`; in any case.

    ## Observation Space

    Text: the task, the result of the last command, and, with `show_commands`, all commands that are possible now.

    ## Starting State

    One of four kinds of rooms with 7 to 27 receptacles, some of them closed, and 7 to 16 things in usual places. No
    thing of the task is in its target. The player stands in the middle with empty hands and sees only the receptacles.
    Type and task are drawn uniformly from those of `tasks` and `split`. It depends on the seed alone.

    ## Rewards

    10 for doing the task (as RAGEN-2, arXiv 2604.06268, pays in ALFWorld), 0 otherwise.

    ## Episode End

    Terminates when the task is done (success); if the task has two things, both must be in or on the same receptacle.
    Truncates after 50 commands. A command that is not possible now is not valid and is not counted; a command that only
    looks is not effective.

    ## Arguments

    - `tasks=None`: a list of task types, None for all six: pick_and_place_simple, look_at_obj_in_light,
      pick_clean_then_place_in_recep, pick_heat_then_place_in_recep, pick_cool_then_place_in_recep,
      pick_two_obj_and_place.
    - `split=None`: "val" is every fifth combination of type, room, thing and target, and "train" the others, so that no
      task of "val" occurs in "train". None takes all.
    - `show_commands=True`: list the possible commands in every observation.

    ## Version History

    - v0: first version. Unlike in ALFWorld, a lamp cannot be switched off again and nothing is sliced.
    """

    max_actions = _MAX_STEPS
    instruction = (
        "You are in a room and have a task to do. Things are in or on furniture, and what is closed must be opened to "
        "be looked into. You carry one thing at a time. Commands, with names as you see them: go to X, open X, close "
        "X, take THING from X, move THING to X, clean THING with sinkbasin 1, heat THING with microwave 1, cool THING "
        "with fridge 1, use desklamp 1, examine X, inventory, look. Doing the task earns 10."
    )

    def __init__(
        self, tasks: Sequence[str] | None = None, split: Split | None = None, show_commands: bool = True
    ) -> None:
        check_split("Household", split)
        self.kinds = check_tasks("Household", tasks)
        check_switch("Household's show_commands", show_commands)
        self.split, self.show_commands = split, show_commands
        self.house: House | None = None
        self._goal = self._said = ""
        self._actions_made = 0
        self._solved = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw a task and a room for it."""
        super().reset(seed=seed)
        rng = self.np_random
        choices = tasks_of(self.kinds[int(rng.integers(len(self.kinds)))], self.split)
        self.house = furnish(choices[int(rng.integers(len(choices)))], rng)
        self._goal = _goal(self.house.task, rng)
        self._said = self._tell("look")
        self._actions_made, self._solved = 0, False
        return self.render(), {}

    def step(self, action: str) -> Step:
        """Do one command; a command that is not possible now changes nothing."""
        _ = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        command = None if self._solved else self.house.commands().get(canonical(action))
        if command is None:
            return self._result(0.0, valid=False, effective=False)
        effective = self.house.do(*command)
        self._actions_made += 1
        self._solved = self.house.solved()
        self._said = self._tell(*command)
        return self._result(_REWARD * self._solved, valid=True, effective=effective)

    def _result(self, reward: float, *, valid: bool, effective: bool) -> Step:
        truncated = not self._solved and self._actions_made >= _MAX_STEPS
        return self.outcome(
            reward, terminated=self._solved, truncated=truncated, success=self._solved, valid=valid, effective=effective
        )

    def admissible_commands(self) -> list[str]:
        """Return the commands that are possible now; [] before the first reset and once the task is done."""
        return [] if self.house is None or self._solved else list(self.house.commands())

    # -- texts for the player -----------------------------------------------------------------------------------------

    def render(self) -> str:
        """Return the task, the result of the last command, and the commands that are possible now."""
        if self.house is None:
            return ""
        lines = [f"Your task: {self._goal}.", self._said]
        if self._solved:
            lines.append("The task is done.")
        elif self.show_commands:
            lines.append(f"Admissible commands: {', '.join(self.admissible_commands())}")
        return "\n".join(lines)

    def _tell(self, verb: str, name: str = "") -> str:
        house = self.house
        if verb == "look" and house.place is None:
            around = ", ".join(map(a, house.receptacles))
            return f"You are in the middle of a {house.task.room}. Around you there are {around}."
        if verb in ("look", "go"):
            return f"You are at the {house.place}. {self._contents()}"
        if verb == "inventory":
            return f"You hold {a(house.held)}." if house.held else "You hold nothing."
        if verb == "examine":
            return self._contents() if name == house.place else self._looks(name)
        done = _DONE[verb].format(name=name, place=house.place, where=in_or_on(kind(house.place)))
        return f"{done} {self._contents()}" if verb == "open" else done

    def _contents(self) -> str:
        """Return the visible contents of the receptacle at the player's place."""
        house, here = self.house, self.house.place
        if house.closed(here):
            return f"The {here} is closed."
        door = f"The {here} is open. " if house.openable(here) else ""
        things = ", ".join(map(a, house.visible())) or "nothing"
        return f"{door}{in_or_on(kind(here)).capitalize()} the {here} you see {things}."

    def _looks(self, thing: str) -> str:
        marks = " and ".join(sorted(self.house.marks.get(thing, ())))
        return f"The {thing} is {marks}." if marks else f"There is nothing special about the {thing}."

    # -- players ------------------------------------------------------------------------------------------------------

    def random_action(self, rng: np.random.Generator) -> str:
        """Return one of the possible commands, each equally likely; "" once the task is done."""
        commands = self.admissible_commands()
        return commands[int(rng.integers(len(commands)))] if commands else ""

    def oracle(self) -> list[str]:
        """Return a short plan that uses the places of all things; from the start it has at most 12 commands."""
        plan: list[str] = []
        if self.house is not None and not self._solved:
            house = self.house.copy()
            while not house.solved():
                plan.append(next_command(house))
                house.do(*house.commands()[plan[-1]])
        return plan


def check_tasks(name: str, tasks: Sequence[str] | None) -> tuple[str, ...]:
    """Return the given task types, or all for None; `name` is that of the environment.

    Raises:
        RecipeError: `tasks` is neither None nor a list of different task types of ALFWorld.
    """
    if tasks is None:
        return TASKS
    listed = not isinstance(tasks, str) and isinstance(tasks, Sequence)
    if not listed or not tasks or any(task not in TASKS for task in tasks) or len(set(tasks)) < len(tasks):
        raise RecipeError(f"{name}'s tasks must be a list of different ones of {', '.join(TASKS)}, not {tasks!r}.")
    return tuple(tasks)


def canonical(action: Any) -> str:
    """Return a command in its listed form: lower case, single blanks, "put .. in/on .." as "move .. to ..".

    A value that is no text, or is longer than any command, becomes "".
    """
    text = sanitise(action, _LONGEST + 1).lower() if isinstance(action, str) else ""
    if len(text) > _LONGEST:
        return ""
    if put := _PUT.fullmatch(text):
        return f"move {put[1]} to {put[2]}"
    if lamp := _TURN_ON.fullmatch(text):
        return f"use {lamp[1]}"
    return text


def _goal(task: Task, rng: np.random.Generator) -> str:
    """Return the task in one of two wordings."""
    ways = _GOALS[task.type]
    way = ways[int(rng.integers(len(ways)))]
    place = f"{in_or_on(task.target)} {a(task.target)}"
    return way.format(thing=a(task.thing), things=_plural(task.thing), place=place, target=task.target)


def _plural(thing: str) -> str:
    if thing == "knife":
        return "knives"
    return thing + ("es" if thing.endswith(("o", "x", "ch", "s")) else "s")
