"""Measurements during training that cost model passes: mutual information and gradient signal.

Both read the batch from the data plane and send rows of their own to the actor's workers as plain data. They write
nothing to it, so the training batch does not change. The first calls `compute_log_prob` and works with any
engine behind the workers. The second runs a function on them (`gradient_norms`), through the method that every verl
worker has for this purpose (single_controller/base/worker.py:320).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from verl.single_controller.base.decorator import dispatch_lazy_compute_data_proto
from verl.trainer.ppo.padding_utils import build_padding_position_ids
from verl.utils import tensordict_utils as tu

from ragen_verl.config.probes import GradientSignal, MutualInformation
from ragen_verl.diagnostics import gradient_signal as signal
from ragen_verl.diagnostics import mutual_information as mi
from ragen_verl.errors import RecipeError
from ragen_verl.filter import group_scores
from ragen_verl.names import GRADIENT_SIGNAL, MUTUAL_INFORMATION
from ragen_verl.training import data_plane
from ragen_verl.training.batch import TrajectoryBatch
from ragen_verl.training.data_plane import Batch, nested
from ragen_verl.training.gradient_norms import gradient_norms
from ragen_verl.training.planner import MESH, data_parallel_ranks

__all__ = [
    "MutualInformationProbe",
    "Places",
    "cross_rows",
    "gradient_signal",
    "lay_out",
    "row_sums",
    "update_rows",
]


# -- mutual information -----------------------------------------------------------------------------------------------


class MutualInformationProbe:
    """RAGEN-2's proxies of I(X;Z) on one step's trajectories; call it before any of them is dropped.

    Args:
        config: the frequency and the budget.
        seed: `ragen.train.seed`; it and the step determine the draws.
        kept: the share of trajectories that the update uses (`ragen.filter`), for the cost of a step.
        think: whether responses start with thoughts; without thoughts Z is the whole response.
    """

    def __init__(self, config: MutualInformation, seed: int, kept: float, think: bool) -> None:
        self.config, self.seed, self.kept = config, seed, kept
        self.end = "</think>" if think else None
        self.ema = mi.RunningStd()
        self.measured = False

    def __call__(self, trainer: Any, batch: Batch, played: TrajectoryBatch) -> dict[str, float]:
        """Metrics of the step, empty where it is not due.

        Args:
            trainer: verl's trainer.
            batch: the step's rows.
            played: their trajectories.

        Returns:
            `mi/first_turn/*` (the first response to each prompt) and, if a trajectory has two turns,
            `mi/sampled_turns/*` (one turn of each trajectory), with the names of
            `diagnostics.mutual_information.measure` and `forward_tokens`; `mi/*`: the first-turn values again;
            `mi/valid_ratio`: the share of turns with a thought; `mi/forward_tokens`, `mi/forward_budget` (tokens) and
            `mi/seconds` of the whole measurement. A part with fewer than two different prompts has no metrics.

        Raises:
            RecipeError: at the first measurement, the budget is too small for two prompts by two responses. Later,
                when contexts have grown, such a measurement is left out and `mi/skipped` is 1.
        """
        if not mi.due(trainer.global_steps, self.config.every):
            return {}
        started = time.perf_counter()
        rng = np.random.default_rng((self.seed, trainer.global_steps))
        turns, tokens = _turns(trainer, batch, played, self.end)
        thoughts = [[turn for turn in one if turn.thought] for one in turns]
        budget = mi.budget(mi.step_tokens(tokens, self.kept), self.config.share, self.config.every)
        first = [one[0] for one in turns if one]
        # one budget for both parts: half for the first, the rest for the second
        several = any(len(one) > 1 for one in turns)
        parts, left = {}, budget
        try:
            for name, pairs in {
                "first_turn": first,
                **({"sampled_turns": mi.sampled_turns(thoughts, rng)} if several else {}),
            }.items():
                pairs = self._drawn(pairs, rng)
                plan = mi.plan(pairs, left // 2 if several and name == "first_turn" else left, rng)
                if plan is not None:
                    parts[name] = (plan, [pairs[row].thought for row in plan.rows])
                    left -= plan.tokens
        except RecipeError:
            if not self.measured:
                raise
            return {f"{MUTUAL_INFORMATION}/skipped": 1.0}
        self.measured = True
        metrics: dict[str, float] = {}
        for name, (plan, said) in parts.items():
            cells = [(context, thought) for thought in said for context in plan.contexts]
            scores = np.array(_log_probs(trainer, cells)).reshape(len(said), len(plan.contexts))
            found = mi.measure(scores, plan.own, [len(thought) for thought in said], self.ema, name)
            metrics |= {f"{MUTUAL_INFORMATION}/{name}/{key}": value for key, value in found.items()}
            metrics[f"{MUTUAL_INFORMATION}/{name}/forward_tokens"] = float(plan.tokens)
            if name == "first_turn":
                metrics |= {f"{MUTUAL_INFORMATION}/{key}": value for key, value in found.items()}
        count = sum(map(len, turns))
        metrics[f"{MUTUAL_INFORMATION}/valid_ratio"] = sum(map(len, thoughts)) / count if count else 0.0
        metrics[f"{MUTUAL_INFORMATION}/forward_tokens"] = float(budget - left)
        metrics[f"{MUTUAL_INFORMATION}/forward_budget"] = float(budget)
        metrics[f"{MUTUAL_INFORMATION}/seconds"] = time.perf_counter() - started
        return metrics

    def _drawn(self, pairs: list[mi.Pair], rng: np.random.Generator) -> list[mi.Pair]:
        """The pairs with a thought: all of them, or as many as `samples` says."""
        pairs, count = [pair for pair in pairs if pair.thought], self.config.samples
        if count is None or len(pairs) <= count:
            return pairs
        return [pairs[place] for place in sorted(rng.choice(len(pairs), count, replace=False))]


def _turns(trainer: Any, batch: Batch, played: TrajectoryBatch, end: str | None) -> tuple[list[list[mi.Pair]], int]:
    """The thoughts of each trajectory's turns (none if it failed), and the number of tokens of all rows."""
    data = data_plane.current.get(batch, played.row_keys, ["prompts", "responses"])
    decode = partial(trainer.tokenizer.decode, skip_special_tokens=False)
    found = []
    rows_of = _numbered(played)
    for record, rows in zip(played.records, rows_of, strict=True):
        counts = [(turn["prompt_tokens"], turn["response_tokens"]) for turn in record["turns"]]
        turns: list[mi.Pair] = []
        for place, row in enumerate(rows):  # one row has all turns, several have one each
            mine = counts if len(rows) == 1 else counts[place : place + 1]
            turns += mi.turns_of(data["prompts"][row].tolist(), data["responses"][row].tolist(), mine)
        thoughts = [mi.Pair(turn.context, tuple(mi.thought_of(turn.thought, decode, end))) for turn in turns]
        found.append([] if record["excluded"] else thoughts)
    return found, sum(len(row) for rows in data.values() for row in rows)


def _log_probs(trainer: Any, cells: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
    """log p(response | prompt) of every (prompt ids, response ids) under the present actor, in nats.

    It uses the temperature of the sampling, so that this is the policy that sampled the trajectories.
    """
    rollout = trainer.config.actor_rollout_ref.rollout
    most = None if rollout.log_prob_use_dynamic_bsz else rollout.log_prob_micro_batch_size_per_gpu
    places = lay_out(
        [len(prompt) + len(response) for prompt, response in cells], data_parallel_ranks(trainer.actor_rollout_wg), most
    )
    rows = cross_rows(cells, places)
    settings = {"calculate_entropy": False, "compute_loss": False, "temperature": rollout.temperature}
    tu.assign_non_tensor(rows, micro_batch_size_per_gpu=places.micro, **settings)
    output = trainer.actor_rollout_wg.compute_log_prob(rows)
    return row_sums(output["log_probs"], cells, places)


@dataclass(frozen=True)
class Places:
    """The places of rows on the ranks.

    Attributes:
        order: index of the row at each place, -1 for padding; the places of each rank are consecutive and equally many.
        micro: rows of one pass on one rank; it divides the number of a rank's places.
    """

    order: tuple[int, ...]
    micro: int


def lay_out(lengths: Sequence[int], ranks: int, most: int | None) -> Places:
    """Deal rows to ranks, long ones first, so that ranks and passes have rows of similar length.

    Args:
        lengths: tokens of each row.
        ranks: data-parallel ranks; verl gives each the same number of rows.
        most: the highest number of rows of one pass on one rank; None where verl splits passes by tokens.
    """
    share = math.ceil(len(lengths) / ranks)
    passes = 1 if most is None else math.ceil(share / most)
    micro = math.ceil(share / passes)
    longest_first = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    runs = [longest_first[rank::ranks] for rank in range(ranks)]
    return Places(tuple(row for run in runs for row in [*run, *[-1] * (micro * passes - len(run))]), micro)


def cross_rows(cells: Sequence[tuple[Sequence[int], Sequence[int]]], places: Places) -> TensorDict:
    """Rows of prompt and response ids in the form of verl's engines: ragged tensors without padding inside.

    A padding row has two tokens, and its response does not count.
    """
    fields: dict[str, list[torch.Tensor]] = {}
    for row in places.order:
        prompt, response = (torch.tensor(part, dtype=torch.int64) for part in (cells[row] if row >= 0 else ([0], [0])))
        mask = torch.full_like(response, int(row >= 0))
        ids = torch.cat((prompt, response))
        for name, value in {
            "prompts": prompt,
            "responses": response,
            "input_ids": ids,
            "position_ids": build_padding_position_ids(None, torch.ones_like(ids)),
            "response_mask": mask,
            "loss_mask": mask,
        }.items():
            fields.setdefault(name, []).append(value)
    return tu.get_tensordict({name: nested(values) for name, values in fields.items()})


def row_sums(
    log_prob: torch.Tensor, cells: Sequence[tuple[Sequence[int], Sequence[int]]], places: Places
) -> list[float]:
    """Sums over each response, in the order of `cells`.

    Args:
        log_prob: verl's output, ragged, (rows, prompt + response): at each place the next token's log-probability.
    """
    sums = [0.0] * len(cells)
    for row, values in zip(places.order, log_prob.unbind(), strict=True):
        if row >= 0:
            sums[row] = float(values[-len(cells[row][1]) - 1 : -1].double().sum())
    return sums


# -- gradient signal --------------------------------------------------------------------------------------------------

_NEEDED = ["prompts", "responses", "input_ids", "position_ids", "response_mask", "loss_mask", "old_log_probs"]
_NEEDED += ["advantages"]
_OPTIONAL = ["ref_log_prob", "rollout_is_weights"]


def gradient_signal(trainer: Any, batch: Batch, trained: TrajectoryBatch, config: GradientSignal) -> dict[str, float]:
    """Gradient norms of task, entropy and KL by the standard deviation of the groups' returns.

    Call it when advantages are known. It does not change weights, optimizer, schedule or random numbers.

    Returns:
        The metrics of `diagnostics.gradient_signal.summarize`, and `grad_norm/seconds`; empty where it is not due.
        `kl` is present if the batch has the reference model's log-probabilities.
    """
    if not mi.due(trainer.global_steps, config.every):
        return {}
    started = time.perf_counter()
    rows_of, stds = _groups(trained)
    buckets = signal.split(rows_of, stds, config.buckets)
    data = data_plane.current.get(batch, trained.row_keys, [*_NEEDED, *_OPTIONAL])
    actor = trainer.config.actor_rollout_ref.actor
    most = None if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu
    norms = []
    for bucket in buckets:
        lengths = [len(data["input_ids"][row]) for row in bucket.rows]
        places = lay_out(lengths, data_parallel_ranks(trainer.actor_rollout_wg), most)
        rows = update_rows(data, bucket.rows, places)
        tu.assign_non_tensor(
            rows,
            micro_batch_size_per_gpu=places.micro,
            global_batch_size=len(bucket.rows),
            temperature=trainer.config.actor_rollout_ref.rollout.temperature,
        )
        norms.append(_on_workers(trainer, gradient_norms, rows))
    coefficients = {"entropy": actor.entropy_coeff, "kl": actor.kl_loss_coef if actor.use_kl_loss else 0.0}
    metrics = signal.summarize(buckets, norms, coefficients)
    metrics[f"{GRADIENT_SIGNAL}/seconds"] = time.perf_counter() - started
    return metrics


def _groups(trained: TrajectoryBatch) -> tuple[list[list[int]], list[float]]:
    """Rows, and sample standard deviation of raw returns, of each group that has two trajectories or more."""
    groups = group_scores(trained.returns, trained.groups)
    rows_of = _numbered(trained)
    several = [index for index, found in enumerate(groups.trajectories) if len(found) > 1]
    rows = [[row for one in groups.trajectories[index] for row in rows_of[one]] for index in several]
    return rows, [float(groups.std[index]) for index in several]


def update_rows(data: Mapping[str, Sequence[torch.Tensor]], rows: Sequence[int], places: Places) -> TensorDict:
    """The rows of a bucket in the form of verl's update; padding repeats the first row with an empty mask."""
    fields = {}
    for name, values in data.items():
        blank = torch.zeros_like(values[rows[0]]) if name in ("response_mask", "loss_mask") else values[rows[0]]
        fields[name] = nested([values[rows[place]] if place >= 0 else blank for place in places.order])
    return tu.get_tensordict(fields)


# -- between trainer and workers --------------------------------------------------------------------------------------


def _numbered(trajectories: TrajectoryBatch) -> list[list[int]]:
    """For each trajectory the places of its rows in `row_keys`."""
    number = {key: place for place, key in enumerate(trajectories.row_keys)}
    return [[number[key] for key in keys] for keys in trajectories.keys]


def _on_workers(trainer: Any, function: Any, data: TensorDict) -> Any:
    """Run `function(worker, rows of its rank)` on every worker of the actor; the first result that is not None.

    verl's own dispatch of that method does not know tensor or sequence parallelism, so rows are dispatched here in the
    same way as for `compute_log_prob`.
    """
    group = trainer.actor_rollout_wg
    (parts,), _ = dispatch_lazy_compute_data_proto(MESH, group, data)
    # on a worker that several roles share, the method is named after the role, and so is its class here
    method = type(group.execute_with_func_generator).__name__
    results = group.execute_all_sync(method, [function] * group.world_size, parts)
    return next(result for result in results if result is not None)
