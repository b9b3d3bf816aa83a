"""A recipe's episodes played by any policy, through the same rollout code as training, and what the results say.

`plan` lists the episodes, `policies` are who plays, `runner` plays and records them, `statistics` and `summary` say how
sure a number is.
"""
