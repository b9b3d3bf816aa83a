"""Imitation before RL: the environments' oracles demonstrate, and verl's supervised trainer learns from them."""
