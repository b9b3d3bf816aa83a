"""The rules about whole episodes: sizes, ends, success and the oracle."""

from __future__ import annotations

from collections.abc import Iterator

from ragen_lab.checker.calls import shown
from ragen_lab.checker.case import Case, Unchecked
from ragen_lab.checker.costs import measure
from ragen_lab.checker.record import chooser, difference, plan, random_action
from ragen_lab.checker.scores import ENDS, play_all

from ragen_verl.rollout.trajectory import StopReason

__all__ = ["budget", "oracle", "sizes", "success"]

_WEAK = 0.5  # share of episodes that following the oracle solves
_TOO_EASY = 0.95  # share of episodes that the random player solves


def oracle(case: Case) -> Iterator[str]:
    """`oracle` plans valid actions, wins, and leaves the world and its generators alone."""
    if "scores" not in case.facts:
        raise Unchecked("no episode was scored")
    if case.facts["scores"]["oracle"] is None:
        raise Unchecked("it knows no plan")
    score = case.facts["scores"]["oracle"]
    if not score["success"] and not score["error_text"] and not _cut(case, "oracle"):
        yield f"following oracle() solved none of {score['episodes']} episodes"
    elif score["success"] < _WEAK and not _cut(case, "oracle"):
        found = f"following oracle() solved {score['success']:.0%} of {score['episodes']} episodes"
        if case.facts.get("rollouts", {}).get("transitions_differ", True):
            case.notes.append(f"Chance may be the reason, but {found}: does its plan win?")
        else:
            yield f"{found}, though nothing in them is left to chance"
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
    """Whole episodes of a random player and of the oracle, played by the rollout, end without an error."""
    case.facts["scores"] = scores = play_all(case.subject, case.profile, case.calls)
    for player, score in scores.items():
        if score is None:
            continue
        bad = {reason: count for reason, count in score["stops"].items() if reason not in ENDS}
        if bad:
            yield f"episodes of the {player} player ended with {bad}: {score['error_text']}"
    if scores["random"]["actions"] and not scores["random"]["valid"]:
        case.notes.append(
            "The random player made no valid action, so little was tested: give the environment a method "
            "random_action(rng)."
        )
    if (share := scores["random"]["success"]) >= _TOO_EASY:
        case.notes.append(
            f"The random player solves {share:.0%} of the episodes, so a model has nothing to learn: does "
            "info['success'] say what it should?"
        )


def _cut(case: Case, player: str) -> bool:
    """Whether episodes of a player may have been cut by the check's own budget."""
    score = case.facts["scores"][player]
    env = case.build()
    case.calls.reset(env, 0)
    return str(StopReason.ACTION_BUDGET) in score["stops"] and case.profile.budget < env.max_actions


def success(case: Case) -> Iterator[str]:
    """`info["success"]` is true once the task is solved, and the episode ends with it."""
    if "scores" not in case.facts:
        raise Unchecked("no episode was scored")
    scores = [score for score in case.facts["scores"].values() if score]
    if not any(score["success"] for score in scores):
        if any(score["paid_at_the_end"] for score in scores):
            yield "episodes end with a reward above 0, but info['success'] is never true"
            return
        raise Unchecked("no episode was solved")
    for seed in case.seeds():
        env = case.build()
        rng, state = chooser(seed), case.calls.reset(env, seed)
        for _ in range(min(env.max_actions, case.profile.budget)):
            action = next(iter(plan(env, case.calls)), None) or random_action(env, rng, state, case.calls)
            step = case.calls.step(env, action)
            state = step.observation
            if step.info["success"] and not (step.terminated or step.truncated):
                yield f"seed {seed} is solved, but its episode continues: set terminated with success"
                return
            if step.info["success"] and step.truncated:
                yield f"seed {seed} is solved, but its episode is reported as truncated: set terminated instead"
                return
            if step.info["success"] or step.terminated or step.truncated:
                break


def sizes(case: Case) -> Iterator[str]:
    """Observations are not empty and fit into a prompt; a step is fast enough for a rollout."""
    case.facts |= measure(case.subject, case.profile, case.calls, case.tokenizer)
    tokens, most = case.facts["tokens"], case.profile.tokens
    if tokens["max"] > most:
        yield f"an observation has {tokens['max']:,} tokens, more than {most:,}: no room is left for the turns"
    if tokens["empty"]:
        yield f"{tokens['empty']} of {tokens['seen']} observations are empty: the model is shown nothing"
    begin = (case.facts["milliseconds"]["build"] + case.facts["milliseconds"]["reset"]["p50"]) / 1e3
    if begin > case.profile.begin_seconds:
        yield f"an episode takes {begin:.2g} s to begin (building it and reset): every rollout waits for that"
    median = case.facts["milliseconds"]["step"]["p50"] / 1e3
    if median > case.profile.step_seconds:
        yield f"half of the steps take {median:.2g} s or more: a rollout waits for each of them"
    smaller = case.profile.slowed(median)
    if smaller is not case.profile:
        case.profile = smaller
        case.notes.append(f"A step takes {median:.2g} s, so the rules were checked with smaller numbers.")
