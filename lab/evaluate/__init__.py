"""Evaluation: play a recipe's episodes with any policy, through the same rollout code as training, and summarise them.

`plan` lists the episodes, `policies` holds the policies, `spec` finds them by name, `runner` plays and records them,
`summary` computes the figures with their intervals.
"""

from ragen_lab.evaluate.policies import Player, Policy
from ragen_lab.evaluate.spec import Setting, policy

__all__ = ["Player", "Policy", "Setting", "policy"]
