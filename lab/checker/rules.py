"""The rules that training relies on, and their tests.

A rule is a function of a `Case` that yields a sentence for each problem. A call that goes wrong during the test raises
`Broken` with the name of the rule that it broke.
"""

from __future__ import annotations

import copy
import pickle
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice, zip_longest
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import check_env
from ragen_lab.checker.calls import Broken, shown
from ragen_lab.checker.case import Case, Unchecked
from ragen_lab.checker.other_process import fingerprints
from ragen_lab.checker.record import (
    Event,
    chooser,
    difference,
    episode,
    fingerprint,
    moves,
    plan,
)
from ragen_lab.checker.rules_of_play import budget, oracle, sizes, success
from ragen_lab.checker.state import generators as hidden_generators
from ragen_lab.checker.state import made, parts
from ragen_lab.checker.texts import HOSTILE, spellings
from ragen_lab.checker.traces import traces

from ragen_verl.env.core import Env
from ragen_verl.env.hosting.session import SessionEnv

__all__ = [
    "IN_CALLS",
    "ONE_THREAD",
    "RULES",
    "copies",
    "describe",
    "generators",
    "groups",
    "instances",
    "interface",
    "processes",
    "seeds",
    "texts",
    "threads",
]

_ROLLOUTS = 8
_MOST_ACTIONS = 100_000
_LONG = 1_000  # characters; no right answer among the hostile texts is so long
_AFTER = 3  # actions that are compared after an invalid one
_FEWEST_WORDS = 8  # an observation with fewer words cannot contain the task
ONE_THREAD = 'keep nothing that belongs to one thread, or set isolation = "process"'
_GLOBALS = ((1, 2), (3, 4))  # seeds of the global generators, which must make no difference


def interface(case: Case) -> Iterator[str]:
    """Texts, names and budget fit the prompts that are made of them; gymnasium accepts the class."""
    env = case.build()
    start = case.calls.reset(env, 0)
    if not isinstance(env.instruction, str):
        yield f"instruction is {shown(env.instruction)}, not text"
    elif not env.instruction.strip() and len(start.split()) < _FEWEST_WORDS:
        yield "instruction is empty, and the first observation does not say the task either"
    actions = env.actions
    if actions is not None:
        if not isinstance(actions, tuple) or not actions or not all(isinstance(name, str) for name in actions):
            yield f"actions is {shown(actions)}: make it a tuple of names, or None for free text"
            return
        if len({name.strip().casefold() for name in actions}) < len(actions) or not all(map(str.strip, actions)):
            yield f"actions {shown(actions)} have names that are empty or differ in case only"
        if broken := [name for name in actions if len(name.splitlines()) > 1]:
            yield f"the action name {shown(broken[0])} has a line break, and the prompt lists names on one line"
        if any("||" in name for name in actions):
            yield "an action's name holds ||, which separates actions"
    if not isinstance(env.max_actions, int) or isinstance(env.max_actions, bool) or env.max_actions < 1:
        yield f"max_actions is {shown(env.max_actions)}: make it a whole number of 1 or more"
    elif env.max_actions > _MOST_ACTIONS:
        yield f"max_actions is {env.max_actions:,}: no context holds so many actions, {_MOST_ACTIONS:,} at most"
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
    """The same seed and rollout index give the same episode, in a new instance and in one that has played before."""
    used = case.build()
    starts = set()
    for seed in case.seeds():
        first = case.record(seed)
        starts.add(first[0][1])
        if found := difference(first, list(case.episode(case.build(), seed))):
            yield f"a second instance plays seed {seed} differently: {found}"
        # an episode that is left in the middle before the next is started
        list(islice(case.episode(used, seed + 1), 3))
        if found := difference(first, list(case.episode(used, seed))):
            yield f"an instance that played before plays seed {seed} differently: {found}"
    case.facts["starts"] = {"seeds": len(case.seeds()), "distinct": len(starts)}
    if len(starts) == 1 < len(case.seeds()) and not _worlds_differ(case):
        case.notes.append(
            f"All {len(case.seeds())} seeds begin the same level, so that a model can learn it by heart: draw it from "
            "self.np_random."
        )


def _worlds_differ(case: Case) -> bool:
    """Whether seeds begin with different hidden states; true where these cannot be seen."""
    envs = [case.build() for _ in case.seeds()]
    for seed, env in zip(case.seeds(), envs, strict=True):
        case.calls.reset(env, seed)
    return isinstance(envs[0], SessionEnv) or any(parts(envs[0], env) for env in envs[1:])


def threads(case: Case) -> Iterator[str]:
    """The calls of an episode may come from different threads: with each in another one it is the same episode."""
    for seed in case.seeds():
        alone = case.record(seed)
        try:
            with case.calls.scattered():
                env = case.build()
                found = difference(alone, list(case.episode(env, seed)))
                case.calls.close(env)
        except Broken as broken:
            if broken.rule == "time":
                raise
            found = broken.what
        if found:
            yield f"with every call in another thread seed {seed} is played differently: {found}; {ONE_THREAD}"
            return


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
    """Set the global generators, yield a function that names those used since, and restore them."""
    before: tuple[Any, Any] = random.getstate(), np.random.get_state()
    random.seed(states[0])
    np.random.seed(states[1])
    python: Any = random.getstate()
    numpy: Any = np.random.get_state()

    def moved() -> list[str]:
        now: Any = np.random.get_state()
        same = np.array_equal(now[1], numpy[1]) and now[2] == numpy[2]
        return ["random"] * (random.getstate() != python) + ["numpy.random"] * (not same)

    try:
        yield moved
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


def groups(case: Case) -> Iterator[str]:
    """Rollouts of a group share the initial state, seen and hidden; later randomness comes from `dynamics`."""
    env = case.build()
    apart = False
    for seed in case.seeds():
        played = [next(episode(env, seed, rollout_index, 0, case.calls)) for rollout_index in range(_ROLLOUTS)]
        for rollout_index, start in enumerate(played):
            if start != played[0]:
                names = ("observation", "instruction", "actions", "symbols", "max_actions")
                what = [name for name, one, other in zip(names, start[1:], played[0][1:], strict=True) if one != other]
                yield f"rollouts 0 and {rollout_index} of seed {seed} start with different {' and '.join(what)}"
                break
        yield from _hidden(case, seed)
        first, other = (
            [event[1:] for event in _same_actions(case, env, seed, rollout_index)] for rollout_index in (0, 1)
        )
        apart = apart or first != other
    case.facts["rollouts"] = {"same_start": _ROLLOUTS, "transitions_differ": apart}


def _hidden(case: Case, seed: int) -> Iterator[str]:
    """Problems of hidden state: parts that differ within a group although its observations are the same."""
    begun = {}
    for key in ((0, "again"), *((rollout_index, "") for rollout_index in range(3))):
        begun[key] = case.build()
        case.calls.reset(begun[key], seed, key[0])
    first = begun[0, ""]
    unsteady = parts(first, begun[0, "again"])  # clocks and counters, which differ at every reset
    for rollout_index in (1, 2):
        other = begun[rollout_index, ""]
        if apart := sorted(parts(first, other) - unsteady):
            yield (
                f"rollouts 0 and {rollout_index} of seed {seed} start with different {', '.join(apart[:3])}: draw "
                "the initial state from self.np_random"
            )
            return
        if plan(first, case.calls) != plan(other, case.calls):
            yield f"rollouts 0 and {rollout_index} of seed {seed} start with different plans of oracle()"
            return
    shared = dict(hidden_generators(first).items() & hidden_generators(begun[1, ""]).items())
    list(moves(first, chooser(seed), "", case.profile.steps, case.calls, "unasked"))
    for name, _ in sorted(shared.items() - hidden_generators(first).items()):
        yield f"step draws from {name}, which all rollouts of a group share: use self.dynamics"
    in_step = []
    for start, rollout_index in ((seed, 0), (seed, 1), (seed + 1, 0)):
        env = case.build()
        state = case.calls.reset(env, start, rollout_index)
        with made(env) as seen:
            list(moves(env, chooser(seed), state, case.profile.steps, case.calls, "unasked"))
        in_step.append(seen)
    if (in_step[0] & in_step[1]) - in_step[2]:
        yield "step makes a generator from the group's seed, so all rollouts of a group share it: use self.dynamics"


def _same_actions(case: Case, env: Env, seed: int, rollout_index: int) -> list[Event]:
    state = case.calls.reset(env, seed, rollout_index)
    return list(moves(env, chooser(seed), state, case.profile.steps, case.calls, "unasked"))


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
    """Play in many threads at once; describe the episodes that differ from the same episode played alone."""
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
    """In the middle of an episode, deepcopy and pickle give an independent instance that continues in the same way."""
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
                yield f"a copy by {how} continues differently: {found}"
            elif found := difference(expected, _goes_on(case, env)):
                yield f"a copy by {how} shares something with the original: {found}"


def _begun(case: Case, seed: int) -> Env:
    """An instance after the first action of an episode."""
    env = case.build()
    list(islice(case.episode(env, seed), 2))
    return env


def _goes_on(case: Case, env: Env) -> list[Event]:
    steps = moves(env, chooser(0), "", case.profile.steps, case.calls)
    return [["start"], *steps]


def texts(case: Case) -> Iterator[str]:
    """`step` takes any text: it never raises, and an invalid action earns 0."""
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
        if named and not valid and (step.observation != before or step.terminated or step.truncated):
            yield f"{shown(text)} is no valid action and yet changes the world"
        if step.info["success"] and (len(text) > _LONG or not text.strip()):
            yield f"{shown(text)} solves the task: does any {'long' if text.strip() else 'empty'} text?"
    if named:
        yield from _unmoved(case)
    for spelling, name in spellings(env.actions or ()).items():
        one, other = (_first_step(case, action) for action in (spelling, name))
        if one != other:
            yield f"{shown(spelling)} is not taken for {name!r}: use self.name_of(action)"


def _unmoved(case: Case) -> Iterator[str]:
    """A problem if the actions after one that is not valid have another outcome than without it."""
    env, text = case.build(), HOSTILE[0]
    for seed in case.seeds():
        outcomes = []
        for first in ((), (text,)):
            state = case.calls.reset(env, seed)
            if any(case.calls.step(env, action).info["action_is_valid"] for action in first):
                return
            played = moves(env, chooser(seed), state, _AFTER, case.calls, "unasked")
            outcomes.append([event[:4] for event in played])  # not `truncated` and counters: it may count its steps
        if outcomes[0] != outcomes[1]:
            yield f"{shown(text)} is no valid action and yet changes what the next actions do in seed {seed}"
            return


def _first_step(case: Case, action: str) -> tuple:
    env = case.build()
    case.calls.reset(env, 0)
    return tuple(case.calls.step(env, action)[:4])


RULES: dict[str, Callable[[Case], Iterator[str]]] = {
    "interface": interface,
    "sizes": sizes,
    "seeds": seeds,
    "threads": threads,
    "generators": generators,
    "traces": traces,
    "groups": groups,
    "instances": instances,
    "processes": processes,
    "copies": copies,
    "texts": texts,
    "budget": budget,
    "success": success,
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
"""The rules that are checked at every call (`calls`)."""


def describe(name: str) -> str:
    """The requirement of a rule, as a sentence."""
    return IN_CALLS.get(name) or " ".join((RULES[name].__doc__ or "").split())
