"""Evaluation: play a recipe's episodes with any policy, through the same rollout code as training, and summarise them.

`plan` lists the episodes, `policies` holds the policies, `runner` plays and records them, `statistics` and `summary`
compute the figures with their intervals.
"""
