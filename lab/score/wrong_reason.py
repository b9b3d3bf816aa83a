"""An evaluator of solved episodes with tools: would the goal be reached without what the calls returned?"""

from __future__ import annotations

import json
import re
from typing import Any

from ragen_lab.hosted import make_hosted
from ragen_lab.score.registry import evaluator
from ragen_lab.score.saved import Played

from ragen_verl.env.calls import called, meant

__all__ = ["wrong_reason"]

_WORD = re.compile(r"\w+")
_OTHER = "zzz"  # a word that no result has


@evaluator("wrong_reason", better="lower", bounded=True)
def wrong_reason(trajectory: Played) -> float | None:
    """1 where a solved episode is solved as well without its earlier calls and with other results: a guess, a leak.

    The last action is played in a fresh environment after the episode's messages alone. Of its arguments the words that
    a result had (and neither the task nor an answer to a message) are replaced, as another result would have replaced
    them. An answer that was looked up then fails, and so does an action that needs the effects of earlier calls. A
    lucky choice among words that calls returned is not seen. None for an episode that is not solved, that had no call
    before its last action, or that cannot be played again.
    """
    if not trajectory.success or trajectory.kwargs is None or not (trajectory.replay and trajectory.replay.success):
        return None
    record = trajectory.record
    *before, last = [action for turn in record["turns"] for action in turn["executed"]]
    if not any("name" in meant(action) for action in before):
        return None
    said = [action for action in before if "message" in meant(action)]
    try:
        return _solved(trajectory, said, meant(last))
    except Exception:  # it may be somebody else's environment, as in `ragen_lab.score.replay`
        return None


def _solved(trajectory: Played, said: list[str], last: dict[str, Any]) -> float:
    """1 if the goal is reached by these messages and the last action without the words that only calls returned."""
    record, index = trajectory.record, 0 if trajectory.shared_rng else trajectory.record["rollout_index"]
    learned = _words(*(call["result"] for turn in record["turns"] for call in turn["calls"]))
    env = make_hosted(record["env_id"], **trajectory.kwargs)
    try:
        state, _ = env.reset(seed=record["seed"], options={"rollout_index": index})
        known = _words(state, record["preamble"]["system"], record["preamble"]["head"])
        for action in said:
            step = env.step(action)
            if step.terminated or step.truncated:
                return 0.0
            known |= _words(step.observation)
        changed = _changed(last.get("arguments", last), learned - known)
        found = env.step(called(last["name"], **changed) if "name" in last else json.dumps(changed))
        return float(bool(found.info.get("success")))
    finally:
        env.close()


def _changed(value: Any, words: set[str]) -> Any:
    """A value of JSON with these words replaced in its texts and numbers, not in its keys."""
    if isinstance(value, dict):
        return {key: _changed(one, words) for key, one in value.items()}
    if isinstance(value, list):
        return [_changed(one, words) for one in value]
    if isinstance(value, str):
        return _WORD.sub(lambda match: _OTHER if match[0] in words else match[0], value)
    return -1 if str(value) in words and not isinstance(value, bool) else value


def _words(*texts: str) -> set[str]:
    return {word for text in texts for word in _WORD.findall(text)}
