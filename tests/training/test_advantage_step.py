"""The estimators inside verl: by its dispatch, its keys and its padding; and what is refused before a run starts."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import reference_advantages as slow
import torch
from memory_queue import MemoryQueue
from omegaconf import DictConfig, OmegaConf
from refusals import refused
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from ragen_verl.advantages import ESTIMATORS, estimator
from ragen_verl.advantages.batch import AdvantageBatch
from ragen_verl.config import RagenConfig
from ragen_verl.config.advantage import VERL_OPTIONS, Advantage
from ragen_verl.errors import RecipeError
from ragen_verl.names import ESTIMATOR
from ragen_verl.training import advantages as join
from ragen_verl.training import data_plane
from ragen_verl.training.batch import RowTurns, TrajectoryBatch
from ragen_verl.validation.estimators import check_estimator

NAMES = sorted(ESTIMATORS)

# two groups of two, the second trajectory of the first group in two rows, one row of verl's padding; in verl's order
KEYS = ["u-1_1_1", "u-2_0_0", "pad00_0_0", "u-1_0_0", "u-2_1_0", "u-1_1_0"]
MASK = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1], [1, 1, 1, 0]])
REWARDS = torch.tensor([[0, 2, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0.5], [0, 0, -1, 0]]).float()
VALUES = torch.linspace(-1, 1, 24).reshape(6, 4)
ENDS = [(1,), (0, 3), (), (1, 3), (3,), (2,)]
STATES = [["b"], ["s", "t"], [], ["a", "b"], ["s"], ["a"]]
BATCH = AdvantageBatch(
    REWARDS, MASK, torch.tensor([0, 1, 2, 0, 1, 0]), torch.tensor([0, 1, 2, 3, 4, 0]), torch.tensor([1, 0, 0, 0, 0, 0]),
    VALUES, STATES,
)  # fmt: skip


def algorithm(name: str = "gae", **changes: object):
    defaults = {"adv_estimator": name, "gamma": 1.0, "lam": 1.0, "norm_adv_by_std_in_grpo": True, "use_pf_ppo": False}
    return OmegaConf.create({**defaults, **changes})


def by_verl(context: join.Context, mask: torch.Tensor = MASK) -> tuple[torch.Tensor, torch.Tensor]:
    """What verl's trainer computes and writes back, with its own data class and its own dispatch."""
    uids = np.array([key.rsplit("_", 2)[0] for key in KEYS], dtype=object)
    data = DataProto.from_dict(
        tensors={"response_mask": mask, "token_level_rewards": REWARDS}, non_tensors={"uid": uids}
    )
    with join.using(context):
        data = compute_advantage_for_multi_trajectories(
            data, batch_keys=KEYS, adv_estimator=ESTIMATOR, config=algorithm(context.name)
        )
    return data.batch["advantages"], data.batch["returns"]


@pytest.mark.parametrize("name", NAMES)
def test_verls_dispatch_gives_what_the_estimator_gives(name: str) -> None:
    options = Advantage().arguments(algorithm(name))
    advantages, returns = by_verl(join.Context(name, KEYS, options, MASK, VALUES, STATES))
    expected = getattr(slow, name)(BATCH)
    assert torch.allclose(advantages, torch.tensor(expected.advantages), atol=1e-5)
    assert torch.allclose(returns, torch.tensor(expected.returns), atol=1e-5)


def test_ours_has_a_name_of_its_own_in_verls_registry() -> None:
    assert core_algos.get_adv_estimator_fn(ESTIMATOR) is join._compute
    assert core_algos.get_adv_estimator_fn("gae") is core_algos.compute_gae_advantage_return


def test_rejected_tokens_lose_their_advantage_and_split_no_turn() -> None:
    rejected = MASK.clone()
    rejected[4, 1] = 0
    context = join.Context("turn_grpo", KEYS, {}, MASK)
    whole, _ = by_verl(context)
    some, _ = by_verl(context, rejected)
    assert some[4, 1] == 0 and whole[4, 1] != 0
    assert torch.equal(some[rejected.bool()], whole[rejected.bool()])


def test_turns_that_are_data_are_not_looked_for_in_the_mask() -> None:
    everything = MASK.clone()
    everything[3] = 1  # a loss on what stands between two turns as well
    options = Advantage().arguments(algorithm("turn_gae"))
    context = join.Context("turn_gae", KEYS, options, everything, VALUES, None, ENDS)
    advantages, returns = by_verl(context, everything)
    assert returns[3].tolist() == pytest.approx([1.0, 1.0, 0.0, 0.0])  # the rewards from each turn on
    assert (advantages[3, 0] - advantages[3, 2]) > 0 and advantages[3, 2] == advantages[3, 3]


def test_the_registered_name_alone_says_whose_it_is() -> None:
    with pytest.raises(RuntimeError, match="name an estimator and use ragen_sync"):
        core_algos.get_adv_estimator_fn(ESTIMATOR)(REWARDS, MASK, config=None, index=None)


def test_keys_are_groups_trajectories_and_places() -> None:
    groups, trajectories, order = (one.tolist() for one in join.indices(["a_b_0_1", "a_b_1_0", "c_0_0", "a_b_0_0"]))
    assert groups == [0, 0, 1, 0]
    assert trajectories == [0, 1, 2, 0]
    assert order == [1, 0, 0, 0]
    assert [len(one) for one in join.indices([])] == [0, 0, 0]


def played() -> TrajectoryBatch:
    """What the rows of KEYS are of; the padding row is of nothing."""
    rows = {key: place for place, key in enumerate(KEYS) if "pad" not in key}
    records = {key.rsplit("_", 1)[0]: {"turns": []} for key in rows}
    numbers = {}
    for key in sorted(rows):
        turns = records[key.rsplit("_", 1)[0]]["turns"]
        numbers[key] = tuple(range(len(turns) + 1, len(turns) + 1 + len(STATES[rows[key]])))
        turns += [{"state": state} for state in STATES[rows[key]]]
    return TrajectoryBatch(
        records=tuple(records.values()),
        groups=tuple(name.rsplit("_", 1)[0] for name in records),
        keys=tuple(tuple(sorted(key for key in rows if key.startswith(name))) for name in records),
        turns={key: RowTurns(numbers[key], ENDS[rows[key]]) for key in rows},
    )


def queue() -> MemoryQueue:
    lengths = [2, 4, 1, 4, 4, 3]
    return MemoryQueue(
        {
            key: {"response_mask": MASK[row, : lengths[row]], "values": VALUES[row, : lengths[row]]}
            for row, key in enumerate(KEYS)
        }
    )


@pytest.mark.parametrize(
    ("name", "asked"),
    [("gae", ("response_mask", "values")), ("gigpo", ("response_mask",)), ("grpo", ("response_mask",))],
)
def test_only_what_an_estimator_needs_is_read(
    name: str, asked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = queue()
    monkeypatch.setattr(data_plane, "tq", rows)
    config = SimpleNamespace(algorithm=algorithm(name))
    with (
        pytest.raises(ZeroDivisionError),
        join.own_estimator(config, Advantage(weight="turns"), rows.batch(), played()),
    ):
        assert config.algorithm.adv_estimator == ESTIMATOR
        context = join._CONTEXT.get()
        raise ZeroDivisionError
    assert config.algorithm.adv_estimator == name
    assert join._CONTEXT.get() is None
    assert rows.asked == [asked]
    assert torch.equal(context.mask, MASK)
    assert (context.name, context.options["weight"]) == (name, "turns")
    if name == "gae":
        assert torch.equal(context.values[MASK.bool()], VALUES[MASK.bool()])
    if name == "gigpo":
        assert context.states == STATES
    assert context.ends == ENDS


def test_options_are_verls_keys_and_ours() -> None:
    assert Advantage().arguments(algorithm("gae", gamma=0.9)) == {"gamma": 0.9, "lam": 1.0, "weight": "none"}
    given = Advantage(options={"turn_gamma": 1, "turn_lam": None})
    assert given.arguments(algorithm("turn_gae")) == {"turn_gamma": 1.0, "weight": "none"}
    assert Advantage(weight="length").arguments(algorithm("rloo")) == {"weight": "length"}


@pytest.mark.parametrize(
    ("block", "critic", "own_block", "n", "words"),
    [
        ({"name": "gea"}, True, {}, 8, "did you mean gae?"),
        ({"name": "gae"}, False, {}, 8, "gae needs values but critic.enable is false"),
        ({"name": "turn_gae"}, None, {}, 8, "turn_gae needs values but critic.enable is null"),
        ({"name": "gigpo"}, True, {}, 8, "gigpo ignores its values"),
        ({"name": "reinforce_plus_plus"}, True, {}, 8, "ignores its values"),
        ({"name": "rloo"}, False, {}, 1, "rollout.n is 1"),
        ({"name": "grpo", "gamma": 0.9}, False, {}, 8, "algorithm.gamma is 0.9 but algorithm.adv_estimator grpo does"),
        ({"name": "turn_gae", "lam": 0.9}, True, {}, 8, "algorithm.lam is 0.9"),
        ({"name": "gae", "gamma": 1.5}, True, {}, 8, "a number from 0 to 1"),
        ({"name": "rloo", "norm_adv_by_std_in_grpo": False}, False, {}, 8, "use one of grpo, gigpo, turn_grpo"),
        ({"name": "gae", "use_pf_ppo": True}, True, {}, 8, "algorithm.use_pf_ppo"),
        ({"name": "gae"}, True, {"turn_gamma": 1.0}, 8, "ragen.advantage.turn_gamma is 1.0"),
        ({"name": "grpo"}, False, {"step_weight": 1.0}, 8, "use one of gigpo"),
        ({"name": "turn_gae"}, True, {"turn_gamma": 1.1}, 8, "turn_gamma is 1.1 but has to be a number from 0 to 1"),
        ({"name": "gigpo"}, False, {"step_weight": -1}, 8, "a number of 0 or more or null (advantage estimator gigpo)"),
        ({"name": "gigpo"}, False, {"omega": None}, 8, "ragen.advantage.omega is not a key of ragen.advantage: known"),
        ({"name": "gigpo"}, False, {"omega": 1}, 8, "ragen.advantage.omega is not a key of ragen.advantage: known are"),
        ({"name": "gigpo"}, False, {"step_wieght": 1.0}, 8, "did you mean step_weight?"),
        ({"name": "gae"}, True, {"gamma": 0.9}, 8, "verl has a key for it: set algorithm.gamma"),
        ({"name": "ragen_advantage"}, True, {}, 8, "which is no advantage estimator: known are"),
    ],
)
def test_what_would_do_nothing_or_lacks_something_is_refused(
    block: dict, critic: bool | None, own_block: dict, n: int, words: str
) -> None:
    with refused(words):
        Advantage(options=own_block).check(algorithm(**block), critic=critic, group_size=n)


@pytest.mark.parametrize("name", NAMES)
def test_defaults_of_every_estimator_are_accepted(name: str) -> None:
    estimator = ESTIMATORS[name]
    Advantage().check(algorithm(name), critic=estimator.needs_critic, group_size=2)
    own = {key: value for key, value in estimator.options.items() if key not in VERL_OPTIONS}
    Advantage("turns", own).check(algorithm(name), critic=estimator.needs_critic, group_size=2)
    assert estimator.function.__doc__


def test_verls_own_choice_of_a_critic_is_gaes() -> None:
    Advantage().check(algorithm("gae"), critic=None, group_size=1)
    Advantage().check(algorithm("dr_grpo", norm_adv_by_std_in_grpo=False), critic=None, group_size=2)


def test_weight_that_does_not_exist_is_refused() -> None:
    block = {"train": {"envs": [{"id": "Bandit-v0", "groups": 2}]}, "val": {"envs": [{"id": "Bandit-v0", "groups": 2}]}}
    block |= {"run": {"dir": "runs/x"}, "advantage": {"weight": "size"}}
    for split, seed in (("train", 10), ("val", 0)):
        block[split]["seed"] = seed
    with pytest.raises(RecipeError, match="one of none, length, turns"):
        RagenConfig.from_omegaconf({"ragen": block})


# -- estimators of others ---------------------------------------------------------------------------------------------


def recipe(name: str, critic: bool | None = False) -> DictConfig:
    rollout = {"actor_rollout_ref": {"rollout": {"n": 8}}, "critic": {"enable": critic}}
    return OmegaConf.create({"algorithm": algorithm(name), **rollout})


@pytest.fixture
def verls(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimator that somebody registered with verl."""

    def half(token_level_rewards, response_mask, index, config, **_):
        advantages = token_level_rewards.sum(dim=1, keepdim=True) / 2 * response_mask
        return advantages, advantages

    monkeypatch.setitem(core_algos.ADV_ESTIMATOR_REGISTRY, "half", half)


def test_estimator_registered_with_verl_is_computed_by_verl(verls: None) -> None:
    config = recipe("half")
    check_estimator(config, Advantage())
    uids = np.array([key.rsplit("_", 2)[0] for key in KEYS], dtype=object)
    data = DataProto.from_dict(
        tensors={"response_mask": MASK, "token_level_rewards": REWARDS}, non_tensors={"uid": uids}
    )
    with join.own_estimator(config, Advantage(), batch=None, trajectories=None):  # the queue is not asked for anything
        data = compute_advantage_for_multi_trajectories(
            data, batch_keys=KEYS, adv_estimator=config.algorithm.adv_estimator, config=config.algorithm
        )
    assert torch.equal(data.batch["advantages"], REWARDS.sum(dim=1, keepdim=True) / 2 * MASK)


@pytest.mark.parametrize(
    ("name", "critic", "advantage", "words"),
    [
        ("half", True, Advantage(), "does not hand it the values"),
        ("half", None, Advantage("turns"), "ragen.advantage.weight is 'turns'"),
        ("half", None, Advantage(options={"turn_gamma": 1.0}), "ragen.advantage.turn_gamma is 1.0"),
        ("hafl", None, Advantage(), "did you mean half?"),
        ("remax", None, Advantage(), "missing a required argument: 'reward_baselines'"),
        ("optimal_token_baseline", None, Advantage(), "registered with verl, which calls it with token_level_rewards"),
    ],
)
def test_what_verl_does_not_hand_over_is_refused(
    name: str, critic: bool | None, advantage: Advantage, words: str, verls: None
) -> None:
    with pytest.raises(RecipeError) as refusal:
        check_estimator(recipe(name, critic), advantage)
    assert words in str(refusal.value)


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimator with an option, registered for one test."""
    len(ESTIMATORS)
    monkeypatch.setattr(ESTIMATORS, "_things", dict(ESTIMATORS._things))

    @estimator("mine", needs_group=True)
    def mine(batch, *, sharpness: float = 2.0, gamma: float = 1.0):
        """Sharpness everywhere."""
        advantages = torch.full(batch.mask.shape, sharpness * gamma, dtype=torch.float64)
        return advantages, torch.where(batch.sampled, advantages, float("nan"))


def test_estimator_of_a_plugin_is_checked_and_computed_by_name(mine: None) -> None:
    config = recipe("mine")
    config.algorithm.gamma = 0.5
    advantage = Advantage("none", {"sharpness": 3})
    check_estimator(config, advantage)
    options = advantage.arguments(config.algorithm)
    assert options == {"sharpness": 3.0, "gamma": 0.5, "weight": "none"}
    advantages, returns = by_verl(join.Context("mine", KEYS, options, MASK))
    assert torch.equal(advantages, 1.5 * MASK) and torch.equal(returns, advantages)
    for wrong, words in (({"sharpness": "high"}, "a number or null"), ({"sharpnes": 1}, "did you mean sharpness?")):
        with pytest.raises(RecipeError) as refusal:
            check_estimator(config, Advantage("none", wrong))
        assert words in str(refusal.value)


@pytest.mark.parametrize("wrong", [lambda batch: (batch.rewards[:1], batch.rewards), lambda batch: (MASK / 0.0,) * 2])
def test_estimator_that_returns_something_else_is_named(wrong: Callable, mine: None) -> None:
    estimator("wrong")(wrong)
    with pytest.raises(ValueError, match="wrong returned something else than one finite number for each sampled"):
        by_verl(join.Context("wrong", KEYS, {}, MASK))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda batch, sharpness=2.0: None, "its options by keyword"),
        (lambda *, sharpness=2.0: None, "has to take the batch"),
        (lambda batch, *, sharpness: None, "has no default"),
        (lambda batch, *, weight=1.0: None, "give it another name"),
    ],
)
def test_function_of_another_form_is_no_estimator(function: Callable, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        estimator("of another form")(function)


def test_names_of_built_in_estimators_are_taken() -> None:
    len(ESTIMATORS)
    with pytest.raises(RecipeError, match="'grpo' exists already"):
        estimator("grpo")(lambda batch: None)
