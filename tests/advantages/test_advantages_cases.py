"""The cases at the edges, with numbers that can be worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import reference_advantages as slow
import torch

from ragen_verl.advantages import ESTIMATORS
from ragen_verl.advantages.batch import AdvantageBatch
from ragen_verl.advantages.estimate import estimate

NAMES = sorted(ESTIMATORS)
GROUPED = [name for name in NAMES if ESTIMATORS[name].needs_group]


def batch(
    *trajectories: list[float], groups: list[int] | None = None, states: list | None = None, tokens: int = 2
) -> AdvantageBatch:
    """Trajectories given by the rewards of their turns, each turn `tokens` tokens and an observation of one."""
    width = max(1, max((len(one) for one in trajectories), default=0) * (tokens + 1))
    rewards, mask = torch.zeros(len(trajectories), width), torch.zeros(len(trajectories), width)
    for row, turns in enumerate(trajectories):
        for k, reward in enumerate(turns):
            mask[row, k * (tokens + 1) : k * (tokens + 1) + tokens] = 1
            rewards[row, k * (tokens + 1) + tokens - 1] = reward
    count = len(trajectories)
    return AdvantageBatch(
        rewards=rewards,
        mask=mask,
        groups=torch.tensor(groups or [0] * count),
        trajectories=torch.arange(count),
        order=torch.zeros(count, dtype=torch.int64),
        values=torch.linspace(-1, 1, max(1, rewards.numel())).reshape(rewards.shape),
        states=states or [[f"{row}/{k}" for k in range(len(one))] for row, one in enumerate(trajectories)],
    )


def of_turns(name: str, made: AdvantageBatch, **options: object) -> list[list[float]]:
    """The advantage at the first token of each turn of each row."""
    advantages, _ = estimate(name, made, options)
    starts = made.mask.bool() & ~torch.nn.functional.pad(made.mask, (1, 0))[:, :-1].bool()
    return [advantages[row][starts[row]].tolist() for row in range(len(starts))]


def close(expected: list[list[float]]) -> list:
    return [pytest.approx(one, abs=1e-5) for one in expected]


@pytest.mark.parametrize("name", GROUPED)
def test_a_group_of_one_teaches_nothing(name: str) -> None:
    made = batch([1.0, 5.0], [3.0], groups=[0, 1])
    assert of_turns(name, made) == [[0, 0], [0]]


@pytest.mark.parametrize("name", GROUPED)
def test_a_group_of_equals_teaches_nothing(name: str) -> None:
    made = batch([0.1, 0.2], [0.1, 0.2], [0.1, 0.2])
    assert of_turns(name, made) == close([[0, 0]] * 3)


@pytest.mark.parametrize("name", ["grpo", "turn_grpo", "gigpo"])
def test_returns_that_differ_by_rounding_are_equal(name: str) -> None:
    made = batch([0.1, 0.2], [0.3, 0.0], states=[["s", "t"], ["s", "u"]])
    first = [one[0] for one in of_turns(name, made, **({"step_gamma": 1.0} if name == "gigpo" else {}))]
    assert first == [0, 0]


@pytest.mark.parametrize("members", [2, 3, 16])
def test_grpos_largest_advantage_is_one_success_among_failures(members: int) -> None:
    made = batch([1.0], *[[0.0]] * (members - 1))
    bound = (members - 1) / math.sqrt(members)
    assert of_turns("grpo", made)[0] == pytest.approx([bound], rel=1e-5)


def test_group_baselines_by_hand() -> None:
    made = batch([2.0], [1.0, 0.0], [0.0])
    assert of_turns("dr_grpo", made) == close([[1], [0, 0], [-1]])
    assert of_turns("grpo", made) == close([[1], [0, 0], [-1]])  # the sample deviation of 0, 1, 2 is 1
    assert of_turns("rloo", made) == close([[1.5], [0, 0], [-1.5]])


def test_a_dropped_member_leaves_a_group_of_those_who_remain() -> None:
    whole = batch([2.0], [0.0], [1.0])
    failed = batch([2.0], [0.0], [])  # a row without a sampled token
    assert of_turns("dr_grpo", whole) == close([[1], [-1], [0]])
    assert of_turns("dr_grpo", failed) == close([[1], [-1], []])
    assert of_turns("rloo", failed) == close([[2], [-2], []])


def test_turns_are_compared_at_the_same_turn() -> None:
    made = batch([1.0], [0.0, 3.0], [0.0, 0.0, 0.0])
    # from turn 1 on 1, 3, 0; from turn 2 on 0, 3, 0; from turn 3 on 0, 0, 0: three terms each
    expected = [[1 - 4 / 3], [3 - 4 / 3, 3 - 1], [-4 / 3, -1, 0]]
    assert of_turns("turn_grpo", made, norm_adv_by_std_in_grpo=False) == close(expected)
    discounted = [[1 - 2.5 / 3], [1.5 - 2.5 / 3, 2], [-2.5 / 3, -1, 0]]
    assert of_turns("turn_grpo", made, norm_adv_by_std_in_grpo=False, turn_gamma=0.5) == close(discounted)


def test_a_turns_baseline_ignores_when_a_trajectory_stops() -> None:
    """Turns without a reward at the end of one member change nothing for the others, nor for its other turns."""
    short, long = batch([1.0], [0.0, 3.0], [1.0, 1.0]), batch([1.0, 0.0, 0.0], [0.0, 3.0], [1.0, 1.0])
    one, two = of_turns("turn_grpo", short), of_turns("turn_grpo", long)
    assert two[0][:1] == close([one[0]])[0]
    assert two[1:] == close(one[1:])


def test_gigpo_compares_what_was_done_in_the_same_state() -> None:
    made = batch([0.0, 1.0], [0.0, 0.0], [1.0], states=[["s", "a"], ["s", "a"], ["s"]])
    options = {"norm_adv_by_std_in_grpo": False, "step_gamma": 0.5}
    episode = [1 / 3, -2 / 3, 1 / 3]
    first = [0.5 - 0.5, 0 - 0.5, 1 - 0.5]  # returns from the first turn on: 0.5, 0, 1
    second = [1 - 0.5, 0 - 0.5]
    expected = [[episode[0] + first[0], episode[0] + second[0]], [episode[1] + first[1], episode[1] + second[1]]]
    expected += [[episode[2] + first[2]]]
    assert of_turns("gigpo", made, **options) == close(expected)
    assert of_turns("gigpo", made, **options, step_weight=0.0) == close(
        [[one] * len(e) for one, e in zip(episode, expected, strict=True)]
    )


def test_gigpo_does_not_mix_groups_that_meet_the_same_state() -> None:
    one = batch([1.0], [0.0], states=[["s"], ["s"]])
    two = batch([1.0], [0.0], [9.0], [7.0], groups=[0, 0, 1, 1], states=[["s"]] * 4)
    assert of_turns("gigpo", two)[:2] == close(of_turns("gigpo", one))


@pytest.mark.parametrize("at_start", [False, True])
def test_bi_level_gae_with_everything_at_one_is_gae(at_start: bool) -> None:
    made = batch([1.0, 0.0, -0.5], [0.0, 2.0], tokens=4)
    made.rewards[:, ::2] += 0.01 * made.mask[:, ::2]  # as with a KL penalty
    ones = {"gamma": 1.0, "lam": 1.0}
    flat = estimate("gae", made, ones)
    both = estimate("bi_level_gae", made, {**ones, "turn_gamma": 1.0, "turn_lam": 1.0, "value_at_start": at_start})
    for one, two in zip(flat, both, strict=True):
        assert torch.allclose(one, two, atol=1e-5)


def test_a_turn_without_a_reward_is_a_turn_all_the_same() -> None:
    """RAGEN found turns by a reward other than 0, so such a turn was merged with the next."""
    zero, tiny = batch([0.0, 1.0], [0.0, 0.0]), batch([1e-7, 1.0], [1e-7, 1e-7])
    for name in NAMES:
        assert of_turns(name, zero) == [pytest.approx(one, abs=1e-3) for one in of_turns(name, tiny)]


@pytest.mark.parametrize("name", ["gae", "turn_gae", "bi_level_gae"])
def test_a_perfect_critic_is_told_what_it_knows(name: str) -> None:
    made = batch([1.0, 1.0], [0.0, 4.0])
    returns = torch.zeros_like(made.rewards)
    for episode in slow.unpack(made):
        left = 0.0
        for row, column, reward, _ in reversed(episode.tokens):
            left += reward
            returns[row, column] = left
    options = {"turn_gamma": 1.0} if name == "bi_level_gae" else {}
    advantages, targets = estimate(name, replace(made, values=returns), options)
    assert torch.allclose(targets[made.mask.bool()], returns[made.mask.bool()], atol=1e-6)
    assert torch.allclose(advantages, torch.zeros_like(advantages), atol=1e-6)


def test_turn_gae_by_hand() -> None:
    made = batch([1.0, 2.0])
    made.values[:] = torch.tensor([[0.5, 9.0, 9.0, 0.25, 9.0, 9.0]])
    _, targets = estimate("turn_gae", made, {"turn_gamma": 0.5, "turn_lam": 0.5})
    second = 2.0 - 0.25
    first = 1.0 + 0.5 * 0.25 - 0.5 + 0.25 * second
    assert targets.tolist() == [pytest.approx([first + 0.5, first + 0.5, 0, 2.0, 2.0, 0])]


@pytest.mark.parametrize("name", NAMES)
def test_one_turn_or_one_token_or_a_hundred_turns(name: str) -> None:
    for turns, tokens in ((1, 1), (1, 5), (100, 1), (100, 3)):
        rewards = [[float(k % 3 == row) for k in range(turns - 40 * row if turns > 1 else 1)] for row in range(3)]
        made = batch(*rewards, tokens=tokens)
        expected = torch.tensor(getattr(slow, name)(made).advantages)
        assert torch.allclose(estimate(name, made)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_one_token_or_of_padding_alone_is_all_zero(name: str) -> None:
    for made in (batch([], []), batch([1.0], tokens=1), batch([])):
        for one in estimate(name, made, {"weight": "turns"}):
            assert one.shape == made.mask.shape and one.dtype == torch.float32
            assert torch.isfinite(one).all()
        assert not estimate(name, made)[0].any()


def test_a_batch_without_rows_is_empty() -> None:
    made = AdvantageBatch(*[torch.zeros(0, 4)] * 2, *[torch.zeros(0, dtype=torch.int64)] * 3, torch.zeros(0, 4), [])
    for name in NAMES:
        assert estimate(name, made, {"weight": "length"})[0].shape == (0, 4)


def test_weighting_divides_by_size_over_mean_size() -> None:
    made = batch([2.0], [0.0, 0.0, 0.0])
    assert of_turns("dr_grpo", made, weight="turns") == close([[2.0], [-2 / 3] * 3])
    assert of_turns("dr_grpo", made, weight="length") == close([[2.0], [-2 / 3] * 3])
    mask = made.mask.clone()
    mask[0, 0] = 0  # one token of the two
    assert of_turns("dr_grpo", replace(made, mask=mask), weight="length") == close([[3.5], [-3.5 / 6] * 3])


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("grpo", {"gamma": 0.9}, "grpo does not read gamma"),
        ("gae", {"weight": "size"}, "none, length, turns"),
    ],
)
def test_options_that_an_estimator_does_not_read_are_refused(name: str, options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        estimate(name, batch([1.0]), options)


def test_a_batch_that_lacks_what_is_needed_is_refused() -> None:
    made = batch([1.0, 1.0], [0.0])
    parts = (made.rewards, made.mask, made.groups, made.trajectories, made.order)
    with pytest.raises(ValueError, match="needs the critic's values"):
        estimate("gae", AdvantageBatch(*parts))
    with pytest.raises(ValueError, match="needs the state"):
        estimate("gigpo", AdvantageBatch(*parts))
    with pytest.raises(ValueError, match="row 0 has 2 turns but 1 states"):
        estimate("gigpo", AdvantageBatch(*parts, states=[["s"], ["s"]]))
    with pytest.raises(ValueError, match="belong to one"):
        AdvantageBatch(made.rewards[:, 1:], *parts[1:])
    with pytest.raises(ValueError, match="one entry for each of 2 rows"):
        AdvantageBatch(*parts[:4], made.order[:1])
    with pytest.raises(ValueError, match="1 rows of states for 2 rows"):
        AdvantageBatch(*parts, states=[[]])
    with pytest.raises(KeyError):
        estimate("grop", made)
