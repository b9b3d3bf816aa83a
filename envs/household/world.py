"""Rooms, things and tasks of Household, and `House`, a furnished room with its rules."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

__all__ = [
    "HAND",
    "ROOMS",
    "TASKS",
    "THINGS",
    "House",
    "Split",
    "Task",
    "a",
    "furnish",
    "in_or_on",
    "kind",
    "next_command",
    "tasks_of",
]

Split = Literal["train", "val"]

#: Task types by their names in ALFWorld (arXiv 2010.03768).
TASKS = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
_PLACE, _LIGHT, _CLEAN, _HEAT, _COOL, _TWO = TASKS
#: Task type -> the verb that does it, the kind of receptacle that it needs, and the state of the thing afterwards.
_TREATMENTS = {
    _CLEAN: ("clean", "sinkbasin", "clean"),
    _HEAT: ("heat", "microwave", "hot"),
    _COOL: ("cool", "fridge", "cold"),
}
_LAMP = "desklamp"
HAND = "hand"

#: Room -> kind of receptacle -> the least and the greatest number of them.
_ROOMS = {
    "kitchen": "countertop 1-3 diningtable 1-2 cabinet 3-6 drawer 2-5 shelf 0-3 stoveburner 2-4 fridge 1-1 "
    "microwave 1-1 sinkbasin 1-1 garbagecan 1-1",
    "living room": "sofa 1-1 armchair 1-2 coffeetable 1-1 sidetable 1-3 desk 0-1 tvstand 1-1 shelf 1-4 drawer 1-4 "
    "safe 0-1 garbagecan 1-1",
    "bedroom": "bed 1-1 desk 1-2 sidetable 1-2 drawer 2-5 shelf 1-4 dresser 0-1 laundryhamper 0-1 safe 0-1 "
    "garbagecan 1-1",
    "bathroom": "countertop 1-1 sinkbasin 1-2 bathtub 0-1 toilet 1-1 cabinet 2-4 drawer 0-3 shelf 0-2 towelholder 1-2 "
    "cart 0-1 garbagecan 1-1",
}
_OPENABLE = frozenset(["cabinet", "drawer", "fridge", "microwave", "safe", "laundryhamper"])
_HOLLOW = _OPENABLE | frozenset(["sinkbasin", "garbagecan", "bathtub"])

#: Things of one sort: their rooms, their receptacles, their treatments, their kinds.
_SORTS = (
    (
        ("kitchen",),
        "countertop diningtable fridge microwave sinkbasin garbagecan",
        (_CLEAN, _HEAT, _COOL),
        "apple egg potato tomato",
    ),
    (("kitchen",), "countertop diningtable fridge cabinet", (_HEAT, _COOL), "bagel sandwich"),
    (("kitchen",), "countertop diningtable fridge garbagecan", (_CLEAN, _COOL), "cabbage pear"),
    (
        ("kitchen",),
        "countertop diningtable cabinet shelf sinkbasin microwave",
        (_CLEAN, _HEAT, _COOL),
        "cup mug plate bowl",
    ),
    (("kitchen",), "countertop stoveburner cabinet diningtable sinkbasin fridge", (_CLEAN, _COOL), "pan pot"),
    (("kitchen",), "countertop drawer diningtable sinkbasin", (_CLEAN,), "fork spoon knife spatula ladle"),
    (("kitchen",), "countertop cabinet drawer shelf diningtable", (), "saltshaker peppershaker spraybottle"),
    (("bathroom",), "countertop cabinet drawer shelf bathtub cart toilet", (), "soapbottle candle toiletroll"),
    (("bathroom",), "sinkbasin countertop cabinet garbagecan cart toilet", (_CLEAN,), "soapbar cloth sponge"),
    (("bathroom",), "towelholder countertop bathtub shelf", (_CLEAN,), "towel"),
    (
        ("living room", "bedroom"),
        "desk sidetable shelf drawer bed sofa dresser coffeetable",
        (_LIGHT,),
        "book pen pencil creditcard keychain",
    ),
    (
        ("living room", "bedroom"),
        "desk sidetable sofa bed armchair tvstand dresser safe",
        (_LIGHT,),
        "laptop phone watch camera alarmclock",
    ),
    (
        ("living room",),
        "sofa armchair coffeetable sidetable garbagecan tvstand",
        (_LIGHT,),
        "newspaper vase statue box",
    ),
    (("bedroom",), "bed laundryhamper dresser shelf garbagecan", (_LIGHT,), "shirt pillow teddybear"),
)


class Task(NamedTuple):
    """A task; `target` is a kind of receptacle, or the lamp for look_at_obj_in_light."""

    type: str
    room: str
    thing: str
    target: str


class _Thing(NamedTuple):
    places: tuple[str, ...]
    treatments: tuple[str, ...]


def _counts(room: str) -> dict[str, tuple[int, int]]:
    words = _ROOMS[room].split()
    return {kind: tuple(map(int, span.split("-"))) for kind, span in zip(words[::2], words[1::2], strict=True)}


ROOMS = {room: _counts(room) for room in _ROOMS}
#: Room -> kind of thing -> its possible receptacles in that room, and its treatments.
THINGS = {
    room: {
        thing: _Thing(tuple(kind for kind in places.split() if kind in ROOMS[room]), treatments)
        for rooms, places, treatments, things in _SORTS
        if room in rooms
        for thing in things.split()
    }
    for room in ROOMS
}


def _all_tasks(type: str) -> list[Task]:
    tasks = []
    for room, things in THINGS.items():
        for thing, (places, treatments) in things.items():
            if type == _LIGHT and _LIGHT in treatments:
                tasks.append(Task(type, room, thing, _LAMP))
            elif type in (_PLACE, _TWO) or (type in _TREATMENTS and type in treatments):
                tasks += [Task(type, room, thing, place) for place in places]
    return tasks


_ALL = {type: _all_tasks(type) for type in TASKS}


def tasks_of(type: str, split: Split | None) -> list[Task]:
    """Return the tasks of a type: "val" is every fifth, "train" the others, None all."""
    tasks = _ALL[type]
    return [task for number, task in enumerate(tasks) if split is None or (number % 5 == 4) == (split == "val")]


def kind(name: str) -> str:
    """Return the kind of a numbered thing or receptacle: "fridge 1" is a "fridge"."""
    return name.rpartition(" ")[0]


def a(name: str) -> str:
    """Return the name with its article."""
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def in_or_on(receptacle: str) -> str:
    """Return "in" for a hollow kind of receptacle, else "on"."""
    return "in" if receptacle in _HOLLOW else "on"


@dataclass
class House:
    """A room with its receptacles and things, the place of the player, and the effects of commands.

    Attributes:
        task: the task in this room.
        receptacles: their names, such as "fridge 1".
        at: thing -> the receptacle that it is in or on, or HAND.
        opened: the receptacles that are open.
        marks: thing -> its states: some of clean, hot, cold.
        place: the receptacle at which the player stands, None in the middle of the room.
        lit: whether the lamp is on.
    """

    task: Task
    receptacles: tuple[str, ...]
    at: dict[str, str]
    opened: set[str] = field(default_factory=set)
    marks: dict[str, frozenset[str]] = field(default_factory=dict)
    place: str | None = None
    lit: bool = False

    def copy(self) -> House:
        """Return a copy that changes independently."""
        twin = copy.copy(self)
        twin.at, twin.opened, twin.marks = dict(self.at), set(self.opened), dict(self.marks)
        return twin

    @property
    def held(self) -> str | None:
        """The thing in the player's hand."""
        return next((thing for thing, where in self.at.items() if where == HAND), None)

    def openable(self, receptacle: str) -> bool:
        """Tell whether a receptacle has a door or lid."""
        return kind(receptacle) in _OPENABLE

    def closed(self, receptacle: str) -> bool:
        """Tell whether the inside of a receptacle cannot be reached."""
        return self.openable(receptacle) and receptacle not in self.opened

    def visible(self) -> list[str]:
        """Return the things in or on the receptacle at which the player stands."""
        if self.place is None or self.closed(self.place):
            return []
        return [thing for thing, where in self.at.items() if where == self.place]

    def treatments(self, thing: str) -> tuple[str, ...]:
        """Return the verbs that can be done to a thing."""
        known = THINGS[self.task.room].get(kind(thing))
        return tuple(_TREATMENTS[type][0] for type in known.treatments if type in _TREATMENTS) if known else ()

    def commands(self) -> dict[str, tuple[str, ...]]:
        """Return every command that is possible now -> (verb, its names), in the order shown."""
        here, held = self.place, self.held
        found = {f"go to {name}": ("go", name) for name in self.receptacles if name != here}
        if here is not None:
            if self.openable(here):
                verb = "open" if self.closed(here) else "close"
                found[f"{verb} {here}"] = (verb, here)
            found[f"examine {here}"] = ("examine", here)
            for thing in self.visible():
                if kind(thing) == _LAMP:
                    if not self.lit:
                        found[f"use {thing}"] = ("use", thing)
                    continue
                if held is None:
                    found[f"take {thing} from {here}"] = ("take", thing)
                found[f"examine {thing}"] = ("examine", thing)
            if held is not None:
                if not self.closed(here):
                    found[f"move {held} to {here}"] = ("move", held)
                for verb, appliance, _ in _TREATMENTS.values():
                    if kind(here) == appliance and verb in self.treatments(held):
                        found[f"{verb} {held} with {here}"] = (verb, held)
        if held is not None:
            found[f"examine {held}"] = ("examine", held)
        return {**found, "inventory": ("inventory",), "look": ("look",)}

    def do(self, verb: str, name: str = "") -> bool:
        """Apply a possible command; tell whether it changed the house or the player's place."""
        if verb == "go":
            self.place = name
        elif verb == "open":
            self.opened.add(name)
        elif verb == "close":
            self.opened.discard(name)
        elif verb == "take":
            self.at[name] = HAND
        elif verb == "move":
            self.at[name] = self.place
        elif verb == "use":
            self.lit = True
        elif verb in ("clean", "heat", "cool"):
            before = self.marks.get(name, frozenset())
            mark = next(mark for known, _, mark in _TREATMENTS.values() if known == verb)
            self.marks[name] = (before - {"hot", "cold"} if verb != "clean" else before) | {mark}
            return self.marks[name] != before
        else:
            return False
        return True

    def treated(self, thing: str) -> bool:
        """Tell whether a thing is in the state that the task wants."""
        return self.task.type not in _TREATMENTS or _TREATMENTS[self.task.type][2] in self.marks.get(thing, ())

    def delivered(self, thing: str) -> bool:
        """Tell whether a thing belongs to the task, has been treated and is in its target."""
        return kind(thing) == self.task.thing and kind(self.at[thing]) == self.task.target and self.treated(thing)

    def lamp(self) -> str | None:
        """Return the lamp's name, None in a room without one."""
        return next((thing for thing in self.at if kind(thing) == _LAMP), None)

    def solved(self) -> bool:
        """Tell whether the task is done."""
        if self.task.type == _LIGHT:
            held = self.held
            return (
                self.lit and held is not None and kind(held) == self.task.thing and self.at[self.lamp()] == self.place
            )
        return max(self.delivered_to().values(), default=0) >= (2 if self.task.type == _TWO else 1)

    def delivered_to(self) -> Counter[str]:
        """Return receptacle of the target's kind -> number of treated things of the task in or on it."""
        return Counter(self.at[thing] for thing in self.at if self.delivered(thing))


def furnish(task: Task, rng: np.random.Generator) -> House:
    """Draw a room for a task: receptacles, the things of the task (none in its target), and other things."""
    receptacles: list[str] = []
    for name, (low, high) in ROOMS[task.room].items():
        needed = max(low, 1) if name == task.target else low
        receptacles += [f"{name} {number}" for number in range(1, int(rng.integers(needed, max(needed, high) + 1)) + 1)]
    at: dict[str, str] = {}
    numbers: dict[str, int] = {}

    def put(thing: str, places: Sequence[str]) -> None:
        numbers[thing] = numbers.get(thing, 0) + 1
        at[f"{thing} {numbers[thing]}"] = places[int(rng.integers(len(places)))]

    others = [name for name in THINGS[task.room] if name != task.thing]
    drawn = [task.thing] * int(rng.integers(1, 3) + (task.type == _TWO))
    drawn += [others[k] for k in rng.integers(len(others), size=int(rng.integers(6, 13))).tolist()]
    for thing in (drawn[k] for k in rng.permutation(len(drawn)).tolist()):
        banned = task.target if thing == task.thing else None
        suitable = [r for r in receptacles if kind(r) in THINGS[task.room][thing].places and kind(r) != banned]
        put(thing, suitable)
    if task.room in ("living room", "bedroom"):
        put(_LAMP, [r for r in receptacles if kind(r) in ("desk", "sidetable")])
    return House(task, tuple(receptacles), at)


def next_command(house: House) -> str:
    """Return the next command of a short plan that uses the places of all things; the task must not be done yet."""
    task, held, here = house.task, house.held, house.place
    goal = _destination(house)
    if held is None:
        wanted = [t for t in house.at if kind(t) == task.thing and not (house.at[t] == goal and house.treated(t))]
        thing = min(wanted, key=lambda thing: (not house.treated(thing), *_effort(house, house.at[thing])))
        return _reach(house, house.at[thing]) or f"take {thing} from {here}"
    if kind(held) != task.thing:  # free the hand: put the thing down here, or else where nothing has to be opened
        spot = here if here is not None else next(name for name in house.receptacles if not house.openable(name))
        return _reach(house, spot) or f"move {held} to {here}"
    if task.type == _LIGHT:
        return _reach(house, house.at[house.lamp()]) or f"use {house.lamp()}"
    if not house.treated(held):
        verb, appliance, _ = _TREATMENTS[task.type]
        spot = next(name for name in house.receptacles if kind(name) == appliance)
        return f"go to {spot}" if here != spot else f"{verb} {held} with {spot}"
    return _reach(house, goal) or f"move {held} to {here}"


def _destination(house: House) -> str | None:
    """Return the receptacle to fill: the first with most things of the task, or else one that is easy to reach.

    None where the target is the lamp.
    """
    there = house.delivered_to()
    if there:
        return min(there, key=lambda name: (-there[name], house.receptacles.index(name)))
    targets = [name for name in house.receptacles if kind(name) == house.task.target]
    return min(targets, key=lambda name: _effort(house, name), default=None)


def _effort(house: House, receptacle: str) -> tuple[bool, bool]:
    """Return whether the player must go to a receptacle, and must open it; as a key for comparison."""
    return receptacle != house.place, house.closed(receptacle)


def _reach(house: House, receptacle: str) -> str | None:
    """Return the next command towards reaching into a receptacle; None if the player is there and it is open."""
    if house.place != receptacle:
        return f"go to {receptacle}"
    return f"open {receptacle}" if house.closed(receptacle) else None
