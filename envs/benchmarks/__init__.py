"""Benchmarks of other packages with their official scores: a module or folder for each, an extra for each."""
