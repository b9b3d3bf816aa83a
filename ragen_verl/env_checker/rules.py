"""The rules: what a training relies on, and how each is put to the test.

A rule is a function of a `Case` that yields a sentence for whatever breaks it. Calls that go wrong on the way raise
`Broken` with the rule that they broke.
"""

from __future__ import annotations

import copy
import pickle
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, zip_longest
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import check_env

from ragen_verl.env.core import Env
from ragen_verl.env_checker.calls import Broken, Calls, shown
from ragen_verl.env_checker.other_process import fingerprints
from ragen_verl.env_checker.profile import Profile
from ragen_verl.env_checker.record import Event, difference, episode, fingerprint, moves, plan
from ragen_verl.env_checker.scores import ENDS, play_all
from ragen_verl.env_checker.subject import Subject
from ragen_verl.env_checker.texts import HOSTILE, spellings

MEMBERS = 8
_GLOBALS = ((1, 2), (3, 4))  # states of the global generators that must make no difference


@dataclass
class Case:
    """An environment under check, and what the rules share."""

    subject: Subject
    profile: Profile
    calls: Calls
    facts: dict[str, Any] = field(default_factory=dict)
    alone: dict[int, list[Event]] = field(default_factory=dict)

    def build(self) -> Env:
        """A new instance."""
        return self.calls.build(self.subject.build)

    def episode(self, env: Env, seed: int, **options: Any) -> Iterator[Event]:
        """The recorded episode of a seed; its member follows from the seed, as in `elsewhere`."""
        return episode(env, seed, seed % 3, self.profile.steps, self.calls, **options)

    def record(self, seed: int) -> list[Event]:
        """The episode of a seed as a fresh instance plays it with nothing around, played once."""
        if seed not in self.alone:
            self.alone[seed] = list(self.episode(self.build(), seed))
        return self.alone[seed]

    def seeds(self) -> range:
        """The seeds that are recorded."""
        return range(self.profile.seeds)


def interface(case: Case) -> Iterator[str]:
    """Texts, names and budget are what the prompts are made of; gymnasium accepts the class."""
    env = case.build()
    case.calls.reset(env, 0)
    if not isinstance(env.instruction, str):
        yield f"instruction is {shown(env.instruction)}, not text"
    actions = env.actions
    if actions is not None:
        if not isinstance(actions, tuple) or not actions or not all(isinstance(name, str) for name in actions):
            yield f"actions is {shown(actions)}: make it a tuple of names, or None for free text"
            return
        if len({name.strip().casefold() for name in actions}) < len(actions) or not all(map(str.strip, actions)):
            yield f"actions {shown(actions)} have names that are empty or differ in case only"
        if any("||" in name for name in actions):
            yield "an action's name holds ||, which separates actions"
    if not isinstance(env.max_actions, int) or isinstance(env.max_actions, bool) or env.max_actions < 1:
        yield f"max_actions is {shown(env.max_actions)}: make it a whole number of 1 or more"
    if not all(isinstance(text, str) for pair in dict(env.symbols).items() for text in pair):
        yield f"symbols is {shown(dict(env.symbols))}: map symbols to their meaning, both texts"
    yield from _gymnasium(case)


def _gymnasium(case: Case) -> Iterator[str]:
    env = case.build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            case.calls.call("gymnasium's check_env", lambda: check_env(env, skip_render_check=True), times=20)
        except Broken as broken:
            yield broken.what


def seeds(case: Case) -> Iterator[str]:
    """The same seed and member give the same episode, in a new instance and in one that has played before."""
    used = case.build()
    starts = set()
    for seed in case.seeds():
        first = case.record(seed)
        starts.add(first[0][1])
        if found := difference(first, list(case.episode(case.build(), seed))):
            yield f"a second instance plays seed {seed} differently: {found}"
        # left in the middle, then started anew
        list(islice(case.episode(used, seed + 1), 3))
        if found := difference(first, list(case.episode(used, seed))):
            yield f"an instance that played before plays seed {seed} differently: {found}"
    case.facts["starts"] = {"seeds": len(case.seeds()), "distinct": len(starts)}


def generators(case: Case) -> Iterator[str]:
    """The generators of `random` and `numpy.random`, which all code of a process shares, are neither used nor set."""
    seen: list[list[Event]] = []
    for states in _GLOBALS:
        with _global_state(*states) as moved:
            seen.append(list(case.episode(case.build(), 0)))
            touched = moved()
        for name in touched:
            yield f"an episode moves the global generator of {name}: use self.np_random and self.dynamics"
    if found := difference(*seen):
        yield f"another state of the global generators gives another episode: {found}"


@contextmanager
def _global_state(*states: int) -> Iterator[Callable[[], list[str]]]:
    """Set the global generators, give a function that names those that have moved since, and put them back."""
    before = random.getstate(), np.random.get_state()
    random.seed(states[0])
    np.random.seed(states[1])
    python, numpy = random.getstate(), np.random.get_state()

    def moved() -> list[str]:
        same = np.array_equal(np.random.get_state()[1], numpy[1]) and np.random.get_state()[2] == numpy[2]
        return ["random"] * (random.getstate() != python) + ["numpy.random"] * (not same)

    try:
        yield moved
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


def groups(case: Case) -> Iterator[str]:
    """All members of a group start alike: the same observation, instruction, actions and budget."""
    env = case.build()
    apart = False
    for seed in case.seeds():
        played = [next(episode(env, seed, rollout_index, 0, case.calls)) for rollout_index in range(MEMBERS)]
        for rollout_index, start in enumerate(played):
            if start != played[0]:
                names = ("observation", "instruction", "actions", "symbols", "max_actions")
                what = [name for name, one, other in zip(names, start[1:], played[0][1:], strict=True) if one != other]
                yield f"members 0 and {rollout_index} of seed {seed} start with different {' and '.join(what)}"
                break
        first, other = (
            [event[1:] for event in _same_actions(case, env, seed, rollout_index)] for rollout_index in (0, 1)
        )
        apart = apart or first != other
    case.facts["members"] = {"same_start": MEMBERS, "luck_differs": apart}


def _same_actions(case: Case, env: Env, seed: int, rollout_index: int) -> list[Event]:
    state = case.calls.reset(env, seed, rollout_index)
    rng = np.random.default_rng(seed)  # whatever the member
    return list(moves(env, rng, state, case.profile.steps, case.calls, "unasked"))


def instances(case: Case) -> Iterator[str]:
    """Instances do not disturb each other: two take turns, then many play at once, a thread each."""
    first, second = case.record(0), case.record(1)
    both = zip_longest(case.episode(case.build(), 0), case.episode(case.build(), 1))
    turns = [list(events) for events in zip(*both, strict=True)]
    for seed, (alone, beside) in enumerate(zip((first, second), turns, strict=True)):
        if found := difference(alone, [event for event in beside if event is not None]):
            yield f"beside another instance seed {seed} is played differently: {found}; what do they share?"
            return
    wrong = _crowd(case)
    if wrong:
        yield f"beside {case.profile.neighbours} others in threads {len(wrong)} differed, first {wrong[0]}"


def _crowd(case: Case) -> list[str]:
    """Play in many threads at once; what became of those that differed from the same episode alone."""
    alone = [case.record(seed) for seed in case.seeds()]
    envs = [case.build() for _ in range(case.profile.neighbours)]
    ready, wrong = threading.Barrier(len(envs)), []

    def play(number: int, env: Env) -> None:
        seed = number % len(alone)
        try:
            ready.wait()
            found = difference(alone[seed], list(case.episode(env, seed)))
        except Broken as broken:
            found = broken.what
        if found:
            wrong.append(f"seed {seed}: {found}")

    threads = [threading.Thread(target=play, args=one, daemon=True) for one in enumerate(envs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def processes(case: Case) -> Iterator[str]:
    """The same seed gives the same episode in another process."""
    if not case.subject.reachable:
        raise Unchecked(f"another process cannot import {case.subject.label}: define it at the top level of a module")
    [answer] = fingerprints([case.subject], len(case.seeds()), case.profile.steps, case.profile.limit)
    if "error" in answer:
        yield f"another process cannot play it: {answer['error']}"
        return
    here = [fingerprint(case.record(seed)) for seed in case.seeds()]
    if wrong := [seed for seed, (one, other) in enumerate(zip(here, answer["prints"], strict=True)) if one != other]:
        yield f"another process plays seed {wrong[0]} differently: does it use hash() or the order of a set?"


def copies(case: Case) -> Iterator[str]:
    """In the middle of an episode, deepcopy and pickle give an instance that goes on alike and apart."""
    if case.subject.apart:
        raise Unchecked("it is played in a process of its own")
    for how, clone in (("copy.deepcopy", copy.deepcopy), ("pickle", lambda env: pickle.loads(pickle.dumps(env)))):
        for seed in case.seeds():
            expected, env = _goes_on(case, _begun(case, seed)), _begun(case, seed)
            try:
                twin = case.calls.build(partial(clone, env), how)
            except Broken as broken:
                yield broken.what
                break
            if found := difference(expected, _goes_on(case, twin)):
                yield f"a copy by {how} goes on differently: {found}"
            elif found := difference(expected, _goes_on(case, env)):
                yield f"a copy by {how} shares something with the original: {found}"


def _begun(case: Case, seed: int) -> Env:
    """An instance after the first action of an episode."""
    env = case.build()
    list(islice(case.episode(env, seed), 2))
    return env


def _goes_on(case: Case, env: Env) -> list[Event]:
    steps = moves(env, np.random.default_rng(0), "", case.profile.steps, case.calls)
    return [["start"], *steps]


def texts(case: Case) -> Iterator[str]:
    """`step` takes any text: it never raises, and an action that is no valid one earns 0."""
    env = case.build()
    case.calls.reset(env, 0)
    named = env.actions is not None
    for text in HOSTILE[: case.profile.texts]:
        before = case.calls.reset(env, 0)
        step = case.calls.step(env, text)
        valid = step.info["action_is_valid"]
        if named and valid:
            yield f"{shown(text)} is none of the action names and yet valid"
        if not valid and step.reward != 0:
            yield f"{shown(text)} is no valid action and yet earns {step.reward:g}"
        if named and not valid and (step.observation != before or step.terminated):
            yield f"{shown(text)} is no valid action and yet changes the world"
    for spelling, name in spellings(env.actions or ()).items():
        one, other = (_first_step(case, action) for action in (spelling, name))
        if one != other:
            yield f"{shown(spelling)} is not taken for {name!r}: use self.name_of(action)"


def _first_step(case: Case, action: str) -> tuple:
    env = case.build()
    case.calls.reset(env, 0)
    return tuple(case.calls.step(env, action)[:4])


def oracle(case: Case) -> Iterator[str]:
    """`oracle` plans valid actions and leaves the world and its luck alone."""
    if "scores" not in case.facts:
        raise Unchecked("no episode was scored")
    if case.facts["scores"]["oracle"] is None:
        raise Unchecked("it knows no plan")
    for seed in case.seeds():
        asked, unasked = (list(case.episode(case.build(), seed, oracle=how)) for how in ("ignored", "unasked"))
        if where := difference(asked, unasked):
            yield f"asking oracle() for a plan changes the episode of seed {seed}: {where}"
        env = case.build()
        case.calls.reset(env, seed)
        for _ in range(case.profile.steps):
            path = plan(env, case.calls)
            step = case.calls.step(env, path[0]) if path else None
            if step is not None and not step.info["action_is_valid"]:
                yield f"oracle() plans {shown(path[0])} for seed {seed}, which is no valid action"
            if step is None or step.terminated or step.truncated:
                break


def budget(case: Case) -> Iterator[str]:
    """Whole episodes of a random player and of the oracle, played by the rollout, end as they may."""
    case.facts["scores"] = scores = play_all(case.subject, case.profile, case.calls)
    for player, score in scores.items():
        if score is None:
            continue
        bad = {reason: count for reason, count in score["stops"].items() if reason not in ENDS}
        if bad:
            yield f"episodes of the {player} player ended with {bad}: {score['error_text']}"


class Unchecked(Exception):
    """A rule does not apply; says why."""


RULES: dict[str, Callable[[Case], Iterator[str]]] = {
    "interface": interface,
    "seeds": seeds,
    "generators": generators,
    "groups": groups,
    "instances": instances,
    "processes": processes,
    "copies": copies,
    "texts": texts,
    "budget": budget,
    "oracle": oracle,
}
"""Name -> rule, in the order of checking."""

IN_CALLS = {
    "observations": "Observations are text that a tokenizer can take.",
    "rewards": "Rewards are finite numbers.",
    "results": "`reset` and `step` return gymnasium's values, the info with the three flags.",
    "exceptions": "No call raises.",
    "time": "No call hangs.",
}
"""The rules that every call is held to (`calls`)."""


def describe(name: str) -> str:
    """What a rule asks for, in a sentence."""
    return IN_CALLS.get(name) or " ".join((RULES[name].__doc__ or "").split())
