from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from refusals import refused

from ragen_verl import resolvers
from ragen_verl.config import RagenConfig
from ragen_verl.errors import RecipeError
from ragen_verl.resolvers import register_resolvers
from ragen_verl.validation.filter import check_groups

BLOCK = {
    "train": {
        "envs": [{"id": "Sokoban-v0", "groups": 5}, {"id": "Bandit-v0", "groups": 3, "name": "Arms"}],
        "seed": 10000,
    },
    "val": {"envs": [{"id": "Sokoban-v0", "groups": 256}], "seed": 123},
    "run": {"dir": "runs/x"},
}


def block(path: str | None = None, value: object = None) -> dict:
    """The block above with one value replaced, or deleted where the value is `...`."""
    data = copy.deepcopy(BLOCK)
    if path:
        *parents, last = path.split(".")
        node = data
        for key in parents:
            node = node[int(key)] if key.isdigit() else node.setdefault(key, {})
        if value is ...:
            del node[last]
        else:
            node[last] = value
    return data


def read(path: str | None = None, value: object = None) -> RagenConfig:
    return RagenConfig.from_omegaconf(OmegaConf.create({"ragen": block(path, value)}))


def test_block_is_typed_and_defaults_are_the_papers() -> None:
    config = read()
    assert config.train.groups == 8
    assert [env.tag for env in config.train.envs] == ["Sokoban", "Arms"]
    rollout = config.rollout
    assert (rollout.max_turns, rollout.max_actions_per_turn, rollout.format_penalty) == (5, 5, -0.1)
    assert not config.filter.on and config.kept_groups == 8


def test_block_can_be_read_alone() -> None:
    assert RagenConfig.from_omegaconf(OmegaConf.create(block())) == read() == RagenConfig.from_omegaconf(block())


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("rollout.max_turn", 3, "ragen.rollout.max_turn is not a key of ragen.rollout: did you mean max_turns?"),
        ("fliter", {}, "ragen.fliter is not a key of ragen: did you mean filter?"),
        ("zzz", 1, "known are"),
        ("train.envs.0.group", 3, "ragen.train.envs[0].group is not a key"),
        ("train.envs.0.groups", 0, "ragen.train.envs[0].groups is 0 but has to be a number of 1 or more or null."),
        ("train.envs.0.groups", "8", "has to be a whole number"),
        ("train.envs.0.id", None, "ragen.train.envs[0].id is None but has to be a value that is not empty."),
        ("train.envs", [], "has to be a value that is not empty"),
        ("train.envs", {"id": "Sokoban-v0"}, "has to be a list"),
        ("train.seed", -1, "a number of 0 or more"),
        ("train.seed", ..., "ragen.train.seed is missing"),
        ("run", ..., "ragen.run is missing"),
        ("rollout.think", "yes", "ragen.rollout.think is 'yes' but has to be true or false."),
        ("rollout.think", 1, "true or false"),
        ("rollout.max_turns", True, "a whole number"),
        ("rollout.max_turns", 2.5, "ragen.rollout.max_turns is 2.5 but has to be a whole number."),
        ("rollout.max_actions", 0, "a number of 1 or more or null."),
        ("rollout.format_penalty", 0.1, "a number of 0 or less"),
        ("rollout.format_penalty", "-0.1", "a number of 0 or less"),
        ("rollout.step_timeout", 0, "a number above 0"),
        ("rollout", 5, "has to be a block of keys"),
        ("filter", {"strategy": "top_q", "value": 0.9}, "did you mean top_p?"),
        ("filter", {"strategy": "top_k", "value": 25}, "above 0 and at most 1 or null"),
        ("filter", {"strategy": "top_k", "value": True}, "a number above 0"),
        ("filter", {"strategy": "none", "value": 0.25}, "would do nothing"),
        ("run.dir", "${nowhere}", "ragen.run.dir"),
        ("run.dir", "???", "ragen.run.dir"),
    ],
)
def test_wrong_key_or_value_is_named_in_one_sentence(path: str, value: object, words: str) -> None:
    with refused(words):
        read(path, value)


def test_whole_numbers_are_taken_for_floats() -> None:
    assert read("rollout.step_timeout", 5).rollout.step_timeout == 5.0


def test_id_without_version_keeps_its_name_as_tag() -> None:
    config = read("train.envs.0.id", "my-vivid-task")
    assert config.train.envs[0].tag == "my-vivid-task"


def test_groups_of_a_step_are_dealt_in_order() -> None:
    train = read().train
    assert [train.env_of(i).tag for i in range(8)] == ["Sokoban"] * 5 + ["Arms"] * 3
    with pytest.raises(IndexError):
        train.env_of(8)


def test_protocol_takes_over_the_rollout_settings() -> None:
    rollout = read("rollout", {"think": False, "max_turns": 3, "action_sep": ";", "response_length": 7}).rollout
    protocol = rollout.chat_protocol()
    assert (protocol.think, protocol.max_turns, protocol.action_sep) == (False, 3, ";")


def test_overlapping_seeds_are_refused_with_the_numbers() -> None:
    config = read("train.seed", 0)
    with pytest.raises(RecipeError, match=r"0 to 127 .16 steps of 8 groups. and ragen.val 123 to 378"):
        config.check_seeds(16)
    config.check_seeds(15)


@settings(deadline=None)
@given(st.integers(0, 400), st.integers(0, 400), st.integers(1, 20))
def test_seeds_overlap_exactly_where_the_sets_do(train_seed: int, val_seed: int, steps: int) -> None:
    data = block("train.seed", train_seed)
    data["val"] = {"envs": [{"id": "Sokoban-v0", "groups": 20}], "seed": val_seed}
    config = RagenConfig.from_omegaconf(data)
    common = set(config.train.seeds(steps)) & set(config.val.seeds())
    if common:
        with pytest.raises(RecipeError):
            config.check_seeds(steps)
    else:
        config.check_seeds(steps)


def test_filter_needs_two_members_and_one_group() -> None:
    config = read("filter", {"strategy": "top_k"})
    assert config.kept_groups == 2
    check_groups(config, 2)
    with pytest.raises(RecipeError, match=r"rollout\.n is 1"):
        check_groups(config, 1)
    with pytest.raises(RecipeError, match="less than one group"):
        check_groups(read("filter", {"strategy": "top_k", "value": 0.12}), 16)
    check_groups(read(), 1)


def test_resolvers_follow_the_environments() -> None:
    register_resolvers()
    sizes = {"size": "${ragen_groups:${ragen.train.envs}}", "sum": "${ragen_sum:1,2}"}
    config = OmegaConf.create({"ragen": block(), **sizes})
    assert (config.size, config.sum) == (8, 3)
    config.ragen.train.envs[0].groups = 10
    assert config.size == 13


@pytest.mark.parametrize(
    ("flash", "torch", "name"),
    [(True, "2.13.0", "flash_attention_2"), (False, "2.11.0+cu130", "varlen"), (False, "2.10.1", "sdpa")],
)
def test_the_attention_is_the_fastest_that_is_installed(monkeypatch, flash: bool, torch: str, name: str) -> None:
    monkeypatch.setattr(resolvers, "find_spec", lambda package: flash or None)
    monkeypatch.setattr(resolvers, "version", lambda package: torch)
    register_resolvers()
    assert OmegaConf.create({"found": "${ragen_attention:}"}).found == name


@pytest.mark.parametrize(
    ("device", "cupy", "name"), [("cuda", True, "nccl"), ("cuda", False, "gloo"), ("cpu", True, "gloo")]
)
def test_weights_go_over_nccl_where_it_can_be(monkeypatch, device: str, cupy: bool, name: str) -> None:
    monkeypatch.setattr(resolvers, "find_spec", lambda package: cupy or None)
    register_resolvers()
    assert OmegaConf.create({"device": device, "found": "${ragen_push:${device}}"}).found == name
