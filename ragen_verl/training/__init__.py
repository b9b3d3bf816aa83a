"""All that is bound to verl: trainer, agent loop, dataset, losses, probes.

The arithmetic is elsewhere and knows nothing of verl: `rollout`, `filter`, `advantages`, `diagnostics`.
"""
