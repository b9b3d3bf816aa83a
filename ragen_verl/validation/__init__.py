"""Checks of a recipe before Ray starts: keys, values, combinations, lengths and the model's chat template."""
