"""Every loss setting does what its name says, through verl's own loss on tiny policies with known gradients.

The policy is a table of logits, one row of the table per position, so gradients can be compared with formulas.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.core_algos import (
    FixedKLController,
    get_policy_loss_fn,
    kl_penalty,
)
from verl.trainer.ppo.ray_trainer import apply_kl_penalty
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

from ragen_verl.advantages import ESTIMATORS
from ragen_verl.advantages.batch import AdvantageBatch
from ragen_verl.advantages.estimate import estimate
from ragen_verl.training.losses import TURN_MEAN, turn_weights

VOCABULARY = 5
ROW_MODES = ("seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
MODES = ("token-mean", "token-sum", *ROW_MODES)
FEW = settings(deadline=None, max_examples=40)


class Batch:
    """Rows of tokens, a tabular policy over them, and what verl's worker adds to them.

    Args:
        mask: sampled tokens, 0 and 1, one list per row; rows may differ in length.
        seed: of logits, sampled tokens and advantages.
    """

    def __init__(self, mask: list[list[int]], seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.mask = [torch.tensor(row) for row in mask]
        self.tokens = [torch.randint(VOCABULARY, (len(row),), generator=self.generator) for row in mask]
        self.logits = [self.normal(len(row), VOCABULARY) for row in mask]
        self.advantages = [self.normal(len(row)) for row in mask]
        self.old = [log_prob.detach() + 0.3 * self.normal(len(log_prob)) for log_prob in self.log_probs(self.logits)]
        self.ref = [log_prob.detach() + 0.5 * self.normal(len(log_prob)) for log_prob in self.log_probs(self.logits)]

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def log_probs(self, logits: list[torch.Tensor]) -> list[torch.Tensor]:
        return [
            row.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
            for row, tokens in zip(logits, self.tokens, strict=True)
        ]

    def loss(
        self, rows: list[int] | None = None, ranks: int = 1, **actor: object
    ) -> tuple[torch.Tensor, list[torch.Tensor], dict]:
        """verl's loss of some rows as one micro-batch of the whole, its gradient to every row's logits, its metrics."""
        rows = list(range(len(self.mask))) if rows is None else rows
        leaves = [row.clone().requires_grad_() for row in self.logits]
        config = actor_config(**actor)
        log_probs = self.log_probs(leaves)
        entropies = [-(row.softmax(-1) * row.log_softmax(-1)).sum(-1) for row in leaves]
        with_entropy = config.calculate_entropy or config.entropy_coeff != 0

        def nested(values: list[torch.Tensor]) -> torch.Tensor:
            return torch.nested.as_nested_tensor([values[row] for row in rows], layout=torch.jagged)

        def as_model_output(values: list[torch.Tensor]) -> torch.Tensor:
            """One prompt token before the response; the output at a position belongs to the next token."""
            return torch.cat([torch.cat([values[row], values[row].new_zeros(1)]) for row in rows])

        data = TensorDict(
            {
                "prompts": nested([torch.zeros(1, dtype=torch.long) for _ in self.mask]),
                "responses": nested(self.tokens),
                "response_mask": nested(self.mask),
                "old_log_probs": nested(self.old),
                "ref_log_prob": nested(self.ref),
                "advantages": nested(self.advantages),
            },
            batch_size=len(rows),
        )
        tu.assign_non_tensor(
            data,
            dp_size=ranks,
            batch_num_tokens=int(sum(row.sum() for row in self.mask)),
            global_batch_size=len(self.mask),
        )
        output = {
            "log_probs": as_model_output(log_probs),
            "entropy": as_model_output(entropies) if with_entropy else None,
        }
        loss, metrics = ppo_loss(config, output, data)
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        gradients = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(gradients, leaves, strict=True)]
        return loss.detach(), gradients, metrics


def actor_config(loss_mode: str = "vanilla", **values: object) -> FSDPActorConfig:
    return FSDPActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        policy_loss=PolicyLossConfig(loss_mode=loss_mode),
        **values,
    )


def one_token(ratio: float, advantage: float) -> Batch:
    batch = Batch([[1]])
    batch.old = [batch.log_probs(batch.logits)[0] - math.log(ratio)]
    batch.advantages = [torch.tensor([advantage], dtype=torch.float64)]
    return batch


def policy_gradient(batch: Batch, **actor: object) -> float:
    """The derivative of the loss with respect to the sampled token's log-probability, of a batch of one token."""
    _, (gradient,), _ = batch.loss(**actor)
    token, probabilities = batch.tokens[0][0], batch.logits[0].softmax(-1)[0]
    return float(gradient[0, token] / (1 - probabilities[token]))


# -- clip range and dual clip -----------------------------------------------------------------------------------------


@FEW
@given(st.floats(0.05, 6.0), st.floats(0.1, 3.0), st.booleans(), st.floats(0.05, 0.5), st.floats(0.0, 0.5))
def test_gradient_flows_exactly_inside_the_clip_range(
    ratio: float, size: float, good: bool, low: float, more: float
) -> None:
    high, bound = low + more, 3.0
    assume(min(abs(ratio - 1 + low), abs(ratio - 1 - high), abs(ratio - bound)) > 1e-6)
    advantage = size if good else -size
    found = policy_gradient(one_token(ratio, advantage), clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=bound)
    inside = ratio < 1 + high if good else 1 - low < ratio < bound
    assert found == pytest.approx(-advantage * ratio if inside else 0.0, abs=1e-9)


def test_clip_higher_adds_likelier_tokens_of_good_turns_only() -> None:
    symmetric, higher = {"clip_ratio_high": 0.2}, {"clip_ratio_high": 0.28}
    for ratio, advantage, differs in ((1.25, 1.0, True), (1.1, 1.0, False), (1.3, 1.0, False), (1.25, -1.0, False)):
        batch = one_token(ratio, advantage)
        assert (policy_gradient(batch, **symmetric) != policy_gradient(batch, **higher)) is differs, ratio


@FEW
@given(st.floats(0.01, 100.0), st.floats(0.1, 3.0), st.floats(1.1, 5.0))
def test_dual_clip_bounds_the_loss_of_bad_tokens(ratio: float, size: float, bound: float) -> None:
    loss, _, metrics = one_token(ratio, -size).loss(clip_ratio_c=bound)
    assert float(loss) <= size * bound + 1e-9
    if ratio > bound * (1 + 1e-6):
        assert float(loss) == pytest.approx(size * bound)
        assert policy_gradient(one_token(ratio, -size), clip_ratio_c=bound) == 0
        assert metrics["actor/pg_clipfrac_lower"].values == [1.0]
    good, _, _ = one_token(ratio, size).loss(clip_ratio_c=bound)
    assert float(good) == pytest.approx(-size * min(ratio, 1.2))  # and it does not touch good ones


# -- entropy ----------------------------------------------------------------------------------------------------------


def entropy(logits: torch.Tensor) -> torch.Tensor:
    return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)


@pytest.mark.parametrize("loss_mode", ["vanilla", TURN_MEAN])
def test_entropy_bonus_adds_its_gradient_and_pushes_entropy_up(loss_mode: str) -> None:
    batch = Batch([[1, 1, 0, 1], [1, 0, 0, 1]])
    _, without, _ = batch.loss(loss_mode=loss_mode)
    _, with_bonus, _ = batch.loss(loss_mode=loss_mode, entropy_coeff=0.5)
    for before, after, logits, mask in zip(without, with_bonus, batch.logits, batch.mask, strict=True):
        leaf = logits.clone().requires_grad_()
        mean = (entropy(leaf) * mask).sum() / 5
        (ascent,) = torch.autograd.grad(mean, leaf)
        torch.testing.assert_close(after - before, -0.5 * ascent)
        stepped = logits - 0.1 * (after - before)
        assert (entropy(stepped)[mask.bool()] > entropy(logits)[mask.bool()]).all()


def test_logging_entropy_does_not_reward_it() -> None:
    batch = Batch([[1, 1, 0, 1]])
    _, silent, _ = batch.loss()
    _, logged, metrics = batch.loss(calculate_entropy=True)
    assert "actor/entropy_loss" in metrics
    torch.testing.assert_close(silent, logged)


# -- KL in the loss ---------------------------------------------------------------------------------------------------


def expected_gradient(kind: str, logits: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """The gradient that a KL loss has on average over tokens sampled from the policy."""
    leaf = logits.clone().requires_grad_()
    per_token = kl_penalty(leaf.log_softmax(-1), reference.log_softmax(-1), kind)
    (gradient,) = torch.autograd.grad((leaf.detach().softmax(-1) * per_token).sum(), leaf)
    return gradient


def divergence(logits: torch.Tensor, reference: torch.Tensor) -> float:
    return float((logits.softmax(-1) * (logits.log_softmax(-1) - reference.log_softmax(-1))).sum())


@pytest.mark.parametrize("loss_mode", ["vanilla", TURN_MEAN])
def test_the_kl_loss_is_proportional_to_its_coefficient(loss_mode: str) -> None:
    batch = Batch([[1, 1, 0, 1], [1, 1]])
    _, without, _ = batch.loss(loss_mode=loss_mode)
    _, small, metrics = batch.loss(loss_mode=loss_mode, use_kl_loss=True, kl_loss_coef=0.001)
    _, large, _ = batch.loss(loss_mode=loss_mode, use_kl_loss=True, kl_loss_coef=0.1)
    assert float(metrics["kl_loss"].values[0]) > 0
    for off, a, b in zip(without, small, large, strict=True):
        assert (a - off).abs().max() > 0
        torch.testing.assert_close(100 * (a - off), b - off)


@FEW
@given(st.integers(0, 10_000), st.sampled_from(["low_var_kl", "k3", "k2", "mse", "abs", "k1+", "low_var_kl+"]))
def test_kl_loss_pulls_towards_the_reference(seed: int, kind: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits, reference = torch.randn(2, VOCABULARY, generator=generator, dtype=torch.float64)
    stepped = logits - 1e-4 * expected_gradient(kind, logits, reference)
    assert divergence(stepped, reference) < divergence(logits, reference)


@FEW
@given(st.integers(0, 10_000))
def test_k1_in_the_loss_pulls_nowhere_which_is_why_it_is_refused(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits, reference = torch.randn(2, VOCABULARY, generator=generator, dtype=torch.float64)
    for kind in ("kl", "k1"):
        assert expected_gradient(kind, logits, reference).abs().max() < 1e-12
    assert expected_gradient("k1+", logits, reference).abs().max() > 1e-6


# -- KL in the reward -------------------------------------------------------------------------------------------------


def rewarded(coefficient: float) -> tuple[DataProto, dict]:
    """Four rows of one group with a return on the last token; row 0 has drifted from the reference, the others not."""
    mask = torch.tensor([[1, 1, 0, 1]] * 4)
    scores = torch.zeros(4, 4)
    scores[:, -1] = torch.tensor([1.0, 0.0, 1.0, 0.0])
    reference = torch.full((4, 4), -1.0)
    old = reference.clone()
    old[0] += 0.5
    data = DataProto.from_dict(
        tensors={"response_mask": mask, "token_level_scores": scores, "old_log_probs": old, "ref_log_prob": reference}
    )
    return apply_kl_penalty(data, kl_ctrl=FixedKLController(coefficient), kl_penalty="kl")


def test_kl_in_the_reward_costs_each_sampled_token_its_drift() -> None:
    data, metrics = rewarded(0.1)
    cost = data.batch["token_level_scores"] - data.batch["token_level_rewards"]
    expected = torch.zeros(4, 4)
    expected[0] = 0.1 * 0.5 * torch.tensor([1, 1, 0, 1])  # and nothing on the environment's token
    torch.testing.assert_close(cost, expected)
    assert metrics["actor/reward_kl_penalty_coeff"] == 0.1
    assert metrics["actor/reward_kl_penalty"] > 0


@pytest.mark.parametrize("estimator", list(ESTIMATORS))
def test_kl_in_the_reward_lowers_the_advantage_of_what_drifted(estimator: str) -> None:
    def advantages(coefficient: float) -> torch.Tensor:
        data, _ = rewarded(coefficient)
        rows = torch.arange(4)
        batch = AdvantageBatch(
            rewards=data.batch["token_level_rewards"],
            mask=data.batch["response_mask"],
            groups=torch.zeros_like(rows),
            trajectories=rows,
            order=torch.zeros_like(rows),
            values=torch.zeros(4, 4),
            states=[["first", "second"]] * 4,
        )
        return estimate(estimator, batch)[0]

    off, on = advantages(0.0), advantages(0.5)
    torch.testing.assert_close(off[0], off[2])  # rows 0 and 2 have the same return
    assert (on[0] - on[2])[0] < -1e-3


# -- aggregation ------------------------------------------------------------------------------------------------------


@st.composite
def ragged(draw: st.DrawFn) -> list[list[int]]:
    """Masks of rows with 1 to 4 turns of 1 to 6 tokens, observations between them, perhaps one at the end."""
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        row: list[int] = []
        for turn in range(draw(st.integers(1, 4))):
            row += ([0] * draw(st.integers(1, 3)) if turn else []) + [1] * draw(st.integers(1, 6))
        rows.append(row + [0] * draw(st.integers(0, 2)))
    return rows


def runs(mask: torch.Tensor) -> list[list[int]]:
    """Positions of each turn, by walking along the row."""
    turns: list[list[int]] = []
    for position, sampled in enumerate(mask.tolist()):
        if sampled and (position == 0 or not mask[position - 1]):
            turns.append([])
        if sampled:
            turns[-1].append(position)
    return turns


def by_hand(batch: Batch, mode: str, loss_mode: str, constant: float) -> float:
    """The clipped objective, token by token, turn by turn, row by row."""
    total = tokens = 0.0
    rows = []
    for mask, new, old, advantages in zip(
        batch.mask, batch.log_probs(batch.logits), batch.old, batch.advantages, strict=True
    ):
        turns = runs(mask)
        count = sum(len(turn) for turn in turns)
        row = 0.0
        for turn in turns:
            for position in turn:
                ratio, a = math.exp(new[position] - old[position]), float(advantages[position])
                loss = max(-a * ratio, -a * min(max(ratio, 0.8), 1.2))
                loss = min(loss, -a * 3.0) if a < 0 else loss
                row += loss * (count / (len(turns) * len(turn)) if loss_mode == TURN_MEAN else 1.0)
        rows.append((row, count))
        total, tokens = total + row, tokens + count
    return {
        "token-mean": total / tokens,
        "token-sum": total,
        "seq-mean-token-sum": total / len(rows),
        "seq-mean-token-sum-norm": total / len(rows) / constant,
        "seq-mean-token-mean": sum(row / count for row, count in rows) / len(rows),
    }[mode]


@settings(deadline=None, max_examples=30)
@given(ragged(), st.integers(0, 10_000), st.sampled_from(["vanilla", TURN_MEAN]))
def test_aggregation_equals_a_loop_over_rows_turns_and_tokens(mask: list[list[int]], seed: int, loss_mode: str) -> None:
    batch = Batch(mask, seed)
    for mode in MODES:
        factor = 7 if mode == "seq-mean-token-sum-norm" else None
        loss, _, _ = batch.loss(loss_mode=loss_mode, loss_agg_mode=mode, loss_scale_factor=factor)
        assert float(loss) == pytest.approx(by_hand(batch, mode, loss_mode, 7), abs=1e-6)


@settings(deadline=None, max_examples=20)
@given(ragged(), st.integers(0, 10_000), st.data())
def test_loss_does_not_depend_on_micro_batches_or_ranks(mask: list[list[int]], seed: int, data: st.DataObject) -> None:
    batch = Batch(mask, seed)
    cut = data.draw(st.integers(0, len(mask)))
    parts = [part for part in (list(range(cut)), list(range(cut, len(mask)))) if part]
    for mode in MODES:
        actor = {"loss_mode": TURN_MEAN, "loss_agg_mode": mode, "entropy_coeff": 0.01, "use_kl_loss": True}
        if mode == "seq-mean-token-sum-norm":
            actor["loss_scale_factor"] = 9
        whole, gradients, _ = batch.loss(**actor)
        halves = [batch.loss(rows, ranks=2, **actor) for rows in parts]
        # gradients of micro-batches add up; those of two ranks are averaged
        assert float(sum(loss for loss, _, _ in halves)) / 2 == pytest.approx(float(whole), abs=1e-6)
        for row, gradient in enumerate(gradients):
            torch.testing.assert_close(sum(part[row] for _, part, _ in halves) / 2, gradient)


def test_the_constant_of_the_norm_is_the_recipes() -> None:
    for mask in ([[1, 1]], [[1, 1], [1] * 6]):
        batch = Batch(mask)
        plain, _, _ = batch.loss(loss_agg_mode="seq-mean-token-sum")
        normed, _, _ = batch.loss(loss_agg_mode="seq-mean-token-sum-norm", loss_scale_factor=100)
        assert float(normed) == pytest.approx(float(plain) / 100)
        # without it verl divides by the width of the micro-batch, which is why that is refused
        width, _, _ = batch.loss(loss_agg_mode="seq-mean-token-sum-norm")
        assert float(width) == pytest.approx(float(plain) / max(len(row) for row in mask))


@FEW
@given(ragged())
def test_turn_weights_share_a_row_equally_among_its_turns(mask: list[list[int]]) -> None:
    width = max(len(row) for row in mask)
    padded = torch.tensor([row + [0] * (width - len(row)) for row in mask])
    weights = turn_weights(padded)
    assert weights.shape == padded.shape and not weights[padded == 0].any()
    for row, found in zip(padded, weights, strict=True):
        turns = runs(row)
        shares = [float(found[turn].sum()) for turn in turns]
        assert shares == pytest.approx([float(row.sum()) / len(turns)] * len(turns))


def test_turn_weights_of_a_row_without_sampled_tokens_are_zero() -> None:
    assert turn_weights(torch.zeros(2, 3)).tolist() == [[0.0] * 3] * 2
    assert turn_weights(torch.ones(1, 0)).shape == (1, 0)
    assert turn_weights(torch.ones(2, 3)).tolist() == [[1.0] * 3] * 2


def test_a_longer_turn_does_not_drown_a_short_one() -> None:
    def share_of_first_turn(loss_mode: str, length: int) -> float:
        batch = Batch([[1, 0] + [1] * length])
        batch.logits = [torch.zeros(length + 2, VOCABULARY, dtype=torch.float64)]
        batch.old = [log_prob.detach() for log_prob in batch.log_probs(batch.logits)]
        batch.advantages = [torch.ones(length + 2, dtype=torch.float64)]
        _, (gradient,), _ = batch.loss(loss_mode=loss_mode, loss_agg_mode="seq-mean-token-mean")
        per_position = gradient.norm(dim=-1)
        return float(per_position[0] / per_position.sum())

    for length in (1, 4, 19):
        assert share_of_first_turn("vanilla", length) == pytest.approx(1 / (1 + length), rel=1e-5)
        assert share_of_first_turn(TURN_MEAN, length) == pytest.approx(1 / 2, rel=1e-5)


@pytest.mark.parametrize("loss_mode", ["vanilla", TURN_MEAN])
def test_environment_tokens_have_no_part_in_the_loss(loss_mode: str) -> None:
    batch = Batch([[1, 0, 0, 1, 1, 0], [1, 1, 0, 1]])
    actor = {"loss_mode": loss_mode, "entropy_coeff": 0.1, "use_kl_loss": True}
    loss, gradients, _ = batch.loss(**actor)
    for mask, gradient in zip(batch.mask, gradients, strict=True):
        assert not gradient[mask == 0].any() and gradient[mask == 1].any(dim=-1).all()
    for values in (batch.advantages, batch.old, batch.ref):
        for mask, row in zip(batch.mask, values, strict=True):
            row[mask == 0] = 3.0
    other, _, _ = batch.loss(**actor)
    assert float(other) == float(loss)


# -- where verl finds it ----------------------------------------------------------------------------------------------


def test_verl_finds_the_loss_by_its_name() -> None:
    assert get_policy_loss_fn(TURN_MEAN).__module__ == "ragen_verl.training.losses"
    batch = Batch([[1, 0, 1, 1, 1], [1, 1]])
    _, _, ours = batch.loss(loss_mode=TURN_MEAN)
    _, _, verls = batch.loss()
    for name in ("actor/pg_clipfrac", "actor/ppo_kl", "actor/pg_clipfrac_lower"):
        assert ours[name].values == pytest.approx(verls[name].values)


def test_importance_weights_reach_the_per_turn_loss() -> None:
    loss = get_policy_loss_fn(TURN_MEAN)
    new, old, advantages = torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(2, 3)
    mask = torch.tensor([[1, 0, 1], [1, 1, 0]]).bool()
    plain, _ = loss(old, new, advantages, mask, "token-mean", actor_config())
    doubled, _ = loss(old, new, advantages, mask, "token-mean", actor_config(), rollout_is_weights=2 * torch.ones(2, 3))
    assert float(doubled) == pytest.approx(2 * float(plain))


def test_bypass_takes_the_engines_log_probs_as_old_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from verl.trainer.ppo.v1 import trainer_base

    stored = {"rollout_log_probs": torch.tensor([[-1.0, -2.0]])}
    monkeypatch.setattr(trainer_base.tq, "kv_batch_get", lambda **_: dict(stored))
    monkeypatch.setattr(trainer_base.tq, "kv_batch_put", lambda fields, **_: stored.update(fields))
    policy_loss = {"loss_mode": TURN_MEAN}
    config = OmegaConf.create(
        {
            "algorithm": {"rollout_correction": {"bypass_mode": True}},
            "actor_rollout_ref": {"actor": {"policy_loss": dict(policy_loss)}},
        }
    )
    batch = SimpleNamespace(keys=["a"], partition_id="train")
    trainer_base.PPOTrainer._compute_old_log_prob(SimpleNamespace(config=config), batch, {})
    assert stored["old_log_probs"] is stored["rollout_log_probs"]
    assert config.actor_rollout_ref.actor.policy_loss == policy_loss
