"""All that is bound to verl: trainer, agent loop, dataset, losses, probes.

The arithmetic stands in other folders and knows nothing of verl: `rollout`, `filter`, `advantages`, `diagnostics`.
"""
