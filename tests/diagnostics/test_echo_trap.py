"""Repetition and the other indicators that are read from trajectories."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_verl.diagnostics.echo_trap import StepIndicators, meanings, readings
from ragen_verl.diagnostics.repetition import repetition
from ragen_verl.diagnostics.series import Trace
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn

indicators = StepIndicators()
words = st.lists(st.sampled_from("abc"), max_size=8).map(" ".join)
steps = st.lists(st.tuples(st.lists(words, max_size=4), st.integers(0, 3)), max_size=8)


def grams(text: str, n: int) -> list[tuple[str, ...]]:
    parts = text.split()
    return [tuple(parts[i : i + n]) for i in range(len(parts) - n + 1)]


def slow(texts: list[list[str]], prompts: list[int], n: int) -> tuple[float, float, float]:
    """The definitions, word by word."""
    counts = [Counter(gram for turn in turns for gram in grams(turn, n)) for turns in texts]
    filled = [(count, prompt) for count, prompt in zip(counts, prompts, strict=True) if count]
    if not filled:
        return math.nan, math.nan, math.nan
    within = np.mean([len(count) / count.total() for count, _ in filled])
    across = len(set().union(*(count for count, _ in filled))) / sum(count.total() for count, _ in filled)
    owned = {prompt: set().union(*(c for c, p in filled if p == prompt)) for prompt in {p for _, p in filled}}
    if len(owned) < 2:
        return within, across, math.nan
    shares = []
    for count, prompt in filled:
        others = [grams_ for other, grams_ in owned.items() if other != prompt]
        shares.append(np.mean([[gram in other for other in others] for gram in count]))
    return within, across, float(np.mean(shares))


@settings(deadline=None)
@given(steps, st.integers(1, 4))
def test_repetition_is_what_its_words_say(step: list, n: int) -> None:
    texts, prompts = [turns for turns, _ in step], [prompt for _, prompt in step]
    found = repetition(texts, prompts, n)
    assert [found.distinct_within, found.distinct_across, found.shared] == pytest.approx(
        slow(texts, prompts, n), nan_ok=True
    )


def test_one_text_for_all_is_shared_and_different_ones_are_not() -> None:
    same = "my initial intention is to pick the dragon"
    assert repetition([[same]] * 4, [0, 0, 1, 1]).shared == 1.0
    assert repetition([["a b c d"], ["e f g h"]], [0, 1]).shared == 0.0
    assert math.isnan(repetition([[same]] * 4, [0, 0, 0, 0]).shared)


@settings(deadline=None)
@given(st.integers(1, 6))
def test_shared_does_not_depend_on_the_number_of_members(members: int) -> None:
    texts = [["one two three four"], ["one two three five"], ["six seven eight nine"]]
    once = repetition(texts, [0, 1, 2])
    often = repetition([text for text in texts for _ in range(members)], [p for p in range(3) for _ in range(members)])
    assert often.shared == pytest.approx(once.shared)


def test_saying_the_same_every_turn_is_not_distinct() -> None:
    assert repetition([["go right now please"] * 5], [0]).distinct_within == pytest.approx(0.2)


def test_what_is_no_step_is_refused() -> None:
    with pytest.raises(ValueError, match="1 trajectories and 2 prompts"):
        repetition([["a"]], [0, 1])
    with pytest.raises(ValueError, match="one word or more"):
        repetition([["a"]], [0], n=0)


def record(thoughts: list[str], seed: int = 0, env: str = "Sokoban", ok: bool = True, **fields) -> dict:
    turns = [
        Turn(state="", prompt_ids=[1], response_ids=[2], text=f"t {one}", think=one, format_ok=ok) for one in thoughts
    ]
    return Trajectory(env_id=env, seed=seed, rollout_index=0, turns=turns, **fields).record()


def test_indicators_of_a_step() -> None:
    records = [record(["a b c d", "a b c d"], 0), record(["a b c d e f"], 1, ok=False)]
    found = indicators(records)
    assert found["echo/reasoning_words"] == pytest.approx(14 / 3)
    assert found["echo/format_valid"] == pytest.approx(2 / 3)
    assert found["echo/distinct_within"] == pytest.approx((0.5 + 1) / 2)
    assert found["echo/shared"] == pytest.approx((1 + 0.5) / 2)


def test_environments_share_nothing_with_each_other() -> None:
    records = [record(["a b c d"], seed, env) for env in ("Sokoban", "Bandit") for seed in (0, 1)]
    records[2:] = [record(["e f g h"], 0, "Bandit"), record(["i j k l"], 1, "Bandit")]
    assert indicators(records)["echo/shared"] == pytest.approx(0.5)


def test_failed_episodes_count_nowhere_and_nothing_is_made_up() -> None:
    failed = record(["x y z"], 3, stop_reason=StopReason.ENV_ERROR, error="boom")
    good = [record(["a b c d"], 0), record(["a b c d"], 1)]
    assert indicators([*good, failed]) == indicators(good)
    assert indicators([failed]) == {} == indicators([])
    assert "echo/shared" not in indicators([record(["a b"], 0), record(["a"], 1)])


def test_without_thoughts_the_whole_answer_is_read() -> None:
    records = [record([""], 0), record([""], 1)]
    for one in records:
        one["turns"][0]["response"] = "up || left || down"
    found = indicators(records)
    assert found["echo/reasoning_words"] == 0.0
    assert found["echo/shared"] == 1.0


def test_indicators_are_among_those_the_verdict_shows() -> None:
    assert indicators([record(["a b c d"], 0), record(["a b c d"], 1)]).keys() <= meanings().keys()


def test_readings_wait_for_a_baseline() -> None:
    trace = Trace(baseline=4, window=3)
    for step in range(7):
        assert readings(trace, meanings()) == []
        trace.add({"actor/entropy": float(step)}, frozenset(meanings()))
    (reading,) = readings(trace, meanings())
    assert (reading.metric, reading.baseline, reading.value) == ("actor/entropy", 1.5, 5.0)
