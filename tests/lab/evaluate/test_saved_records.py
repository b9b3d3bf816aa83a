"""Records of evaluations: the same as those of runs, read back as they were returned, with what was really sent."""

from __future__ import annotations

import numpy as np
import pytest
from datasets import load_dataset
from endpoint import endpoint
from omegaconf import OmegaConf
from ragen_lab.convert.chats import preferences, sft
from ragen_lab.evaluate.endpoint import Endpoint, Sampling
from ragen_lab.evaluate.plan import episodes
from ragen_lab.evaluate.policies import Player, Policy, Scripted
from ragen_lab.evaluate.runner import evaluate
from test_runner import LENGTHS, block, played, recipe
from transformers import AutoTokenizer

from ragen_verl.config import RagenConfig
from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.episode import Generation
from ragen_verl.runs.trajectories import features, files, messages, read

ANSWER = "<think>straight down</think><answer>Down</answer>"


def test_episodes_are_read_as_they_were_returned(tmp_path):
    records = {name: played(recipe(), Scripted(name), tmp_path / name, samples=2) for name in ("random", "oracle")}
    assert [file.parent.name for file in files(tmp_path)] == ["oracle", "random"]
    for name, returned in records.items():
        found = list(read(tmp_path / name))
        place = ("split", "env", "seed", "rollout_index")
        found, returned = (sorted(some, key=lambda one: [str(one[key]) for key in place]) for some in (found, returned))
        assert found == [one | {"step": None} for one in returned]
    assert {one["split"] for one in read(tmp_path)} == {"val", "generalisation"}
    assert len(list(read(tmp_path, where=lambda one: one["policy"] == "oracle"))) == 38


def test_an_evaluation_that_goes_on_returns_whole_records(tmp_path):
    first = played(recipe(), Scripted("random"), tmp_path)
    again = played(recipe(), Scripted("random"), tmp_path)
    assert again == [one | {"step": None} for one in first]


def test_messages_are_those_that_the_server_got(tmp_path):
    ragen = recipe(max_turns=3)
    with endpoint(ANSWER) as (url, requests):
        policy = Endpoint("m", url, Sampling(concurrency=1, retries=0))
        evaluate(ragen, policy, episodes(ragen, states=2), tmp_path, lengths=LENGTHS, settings={})
    saved = [messages(one, turn["turn"]) for one in read(tmp_path) for turn in one["turns"]]
    assert saved == [request["messages"] for request in requests]


@pytest.mark.parametrize("typed", [False, True])
def test_datasets_loads_an_evaluation_of_mixed_environments(tmp_path, typed):
    played(recipe(), Scripted("random"), tmp_path / "it")
    options = {"features": features(evaluation=True)} if typed else {}
    file = str(tmp_path / "it" / "episodes.jsonl")
    loaded = load_dataset("json", data_files=file, split="train", cache_dir=str(tmp_path / "cache"), **options)
    assert set(loaded["env"]) == {"FrozenLake", "Bandit", "Sokoban"} and len(loaded) == 19


def test_an_evaluation_converts_to_chats_and_pairs(tmp_path):
    played(recipe(), Scripted("random"), tmp_path, samples=8)
    records = list(read(tmp_path))
    assert len(list(sft(records))) == len(records)
    pairs = list(preferences(records, margin=0.5))
    assert pairs and all(pair["chosen"] != pair["rejected"] and pair["margin"] >= 0.5 for pair in pairs)


class Words(Policy):
    """A policy whose conversations are token ids, as those of a model served by vLLM are: says one thing."""

    name, exact = "words", True

    def __init__(self) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(nano_model_path())
        self.saw: list[list[int]] = []

    def chat(self, protocol):
        return ChatTokens(self.tokenizer, protocol)

    def player(self, episode, protocol):
        policy = self

        class Words(Player):
            async def respond(self, conversation, max_tokens):
                policy.saw.append(list(conversation))
                ids = policy.tokenizer.encode("straight down</think><answer>Down</answer>")
                return Generation(ids, np.linspace(-1, -2, len(ids)).tolist())

        return Words()


@pytest.mark.parametrize("wanted", [True, False])
def test_tokens_of_an_exact_policy_are_saved_on_request(tmp_path, wanted):
    settings = OmegaConf.create(block(max_turns=2))
    settings.run.tokens = wanted
    ragen, policy = RagenConfig.from_omegaconf(settings), Words()
    evaluate(ragen, policy, episodes(ragen, states=1), tmp_path, lengths=(1000, 1000), settings={})
    turns = [turn for one in read(tmp_path) for turn in one["turns"]]
    assert turns and all(("tokens" in turn) is wanted for turn in turns)
    if wanted:
        prompts = [turn["tokens"]["prompt_ids"] for turn in turns if turn["turn"] == 1]
        assert all(prompt in policy.saw for prompt in prompts)
        assert all(turn["tokens"]["log_probs"][0] == -1 and turn["tokens"]["advantages"] == [] for turn in turns)
        columns = features(tokens=True, evaluation=True)["turns"].feature["tokens"]
        assert set(columns) == set(turns[0]["tokens"])
