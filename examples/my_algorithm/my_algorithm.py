"""An advantage estimator of one's own: `bounded`, whose advantages no outlier can blow up."""

from typing import Annotated

import torch

from ragen_verl.advantages import estimator
from ragen_verl.advantages.batch import AdvantageBatch
from ragen_verl.advantages.statistics import centred
from ragen_verl.plugins import Accepts

ABOVE_0 = Accepts(lambda value: value > 0, "a number above 0")


@estimator("bounded", needs_group=True)
def bounded(batch: AdvantageBatch, *, sharpness: Annotated[float, ABOVE_0] = 2.0):
    """A = tanh(sharpness * (R - mean of the group)) on every sampled token: between -1 and 1 in any unit of reward."""
    members = batch.members
    returns = members.total(batch.rewards)
    off = centred(returns, members.group, members.groups, by_std=False)
    advantages = members.spread(torch.tanh(sharpness * off))
    return advantages, advantages
