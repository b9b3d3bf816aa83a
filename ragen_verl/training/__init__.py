"""The parts that are bound to verl: trainer, agent loop, dataset, losses, probes.

The arithmetic is in other folders, which do not import verl: `rollout`, `filter`, `advantages`, `diagnostics`.
"""
