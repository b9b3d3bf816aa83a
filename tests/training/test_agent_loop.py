"""The agent loop plays the recipe's protocol and gives the recipe's rewards."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from recipe_composition import composed
from transformers import AutoTokenizer

from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.rollout.reward import REWARDS, reward
from ragen_verl.training.agent_loop import RECORD, RagenAgentLoop

ROW = {"seed": 7, "env_id": "FrozenLake-v0", "kwargs": {}, "name": "Lake", "split": "train"}
STEPS = {"min_global_steps": 1, "max_global_steps": 1}


def test_protocol_and_rewards_of_a_recipe_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REWARDS, "_things", dict(REWARDS))

    @reward("turns")
    def turns(trajectory, *, each: float = 1.0):
        return {"each": [each] * len(trajectory.turns), "end": 100}

    words = AutoTokenizer.from_pretrained(nano_model_path())
    saw = []

    async def generate(request_id, prompt_ids, sampling_params):
        saw.append(words.decode(prompt_ids))
        ids = words.encode("so</think> \\boxed{Left}", add_special_tokens=False)
        return SimpleNamespace(token_ids=ids, log_probs=[-1.0] * len(ids), extra_fields=STEPS)

    config = composed(
        "nano/frozen_lake",
        "ragen.rollout.protocol=boxed",
        "ragen.rollout.max_turns=2",
        "+ragen.rewards.turns={weight: 0.5, each: 4.0}",
        "ragen.rewards.environment=0",
    )
    loop = RagenAgentLoop(SimpleNamespace(config=config), SimpleNamespace(generate=generate), words)
    (output,) = asyncio.run(loop.run({}, extra_info=ROW, session_id=0))
    record = json.loads(output.extra_fields[RECORD])
    played = len(record["turns"])
    assert played == len(saw) and all("Reply with <think> [your thoughts] </think> \\boxed{" in one for one in saw)
    assert all(turn["executed"] == ["Left"] for turn in record["turns"])
    assert output.reward_score == pytest.approx(2.0 * played + 50.0)
    given = output.as_dict()["rm_scores"]
    assert [float(given[end]) for end in output.extra_fields["turn_ends"]] == [2.0] * (played - 1) + [52.0]
    assert record["metrics"]["reward/turns/end"] == 50.0 and record["metrics"]["reward/environment"] == 0.0
