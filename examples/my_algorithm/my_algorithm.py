"""An advantage estimator, a filter strategy and a diagnostic of one's own."""

from typing import Annotated

import torch
from annotated_types import Gt

from ragen_verl import AdvantageBatch, Candidates, centred, estimator, indicator, strategy


@estimator("bounded", needs_group=True)
def bounded(batch: AdvantageBatch, *, sharpness: Annotated[float, Gt(0)] = 2.0):
    """A = tanh(sharpness * (R - mean of the group)) on every sampled token: between -1 and 1 in any unit of reward."""
    rollouts = batch.rollouts
    returns = rollouts.total(batch.rewards)
    off = centred(returns, rollouts.group, rollouts.groups, by_std=False)
    advantages = rollouts.to_tokens(torch.tanh(sharpness * off))
    return advantages, advantages


@strategy("above_mean")
def above_mean(candidates: Candidates, *, factor: Annotated[float, Gt(0)] = 1.0):
    """The groups whose score is at least `factor` times the mean score of the step: a mask, one entry per group."""
    return candidates.scores >= factor * candidates.scores.mean()


@indicator("wordless", metrics={"wordless/share": "share of turns with a reasoning of few words"})
def wordless(records, *, words: int = 1):
    """The share of a step's turns whose reasoning has fewer than `words` words."""
    turns = [turn for record in records if not record["excluded"] for turn in record["turns"]]
    few = [len(turn["reasoning"].split()) < words for turn in turns]
    return {"wordless/share": sum(few) / len(few)} if few else {}
