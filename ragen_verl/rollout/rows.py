"""The training rows of a trajectory: the engine's exact ids, the loss mask, log-probabilities and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragen_verl.rollout.trajectory import Trajectory, Turn

__all__ = ["Row", "rows_of"]


@dataclass(frozen=True)
class Row:
    """One sequence to train on: a prompt, and lists of equal length for the ids after it.

    Attributes:
        turns: numbers (from 1) of the turns whose responses it trains on.
        prompt_ids: the engine's input before the first of these turns; it is never trained on.
        response_ids: the sampled ids, and the ids between two responses.
        response_mask: 1 on ids with a loss: exactly the sampled ids, unless observations shall have a loss too.
        log_probs: the engine's log-probabilities on sampled ids, 0 elsewhere; None if a response has none.
        rewards: reward plus penalty of each turn on its last sampled id, 0 elsewhere.
        ends: the index of that id in `response_ids`, for each turn.
    """

    turns: list[int]
    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    log_probs: list[float] | None
    rewards: list[float]
    ends: list[int]


def rows_of(trajectory: Trajectory, loss_on_env_tokens: bool = False) -> list[Row]:
    """A trajectory's rows: one in total, or one per turn where its context says so; none without a sampled id.

    Args:
        trajectory: the trajectory. The rewards of its rows add up to its return.
        loss_on_env_tokens: give the ids between two responses a loss as well, as RAGEN did at the paper's release
            (loss on everything after the system prompt); here the first prompt never has a loss.
    """
    numbered = list(enumerate(trajectory.turns, start=1))
    parts = [[one] for one in numbered] if trajectory.row_per_turn else [numbered] if numbered else []
    return [_row([number for number, _ in part], [turn for _, turn in part], loss_on_env_tokens) for part in parts]


def _row(numbers: list[int], turns: Sequence[Turn], loss_on_env_tokens: bool) -> Row:
    ids: list[int] = []
    mask: list[int] = []
    log_probs: list[float] = []
    rewards: list[float] = []
    ends: list[int] = []
    for place, turn in enumerate(turns):
        between = turn.prompt_ids if place else []  # the ids before the first response are the row's prompt
        ids += between + turn.response_ids
        mask += [int(loss_on_env_tokens)] * len(between) + [1] * len(turn.response_ids)
        log_probs += [0.0] * len(between) + (turn.log_probs or [])
        rewards += [0.0] * (len(between) + len(turn.response_ids) - 1) + [turn.total]
        ends.append(len(ids) - 1)
    complete = all(turn.log_probs is not None for turn in turns)
    return Row(numbers, list(turns[0].prompt_ids), ids, mask, log_probs if complete else None, rewards, ends)
