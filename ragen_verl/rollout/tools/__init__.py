"""Calls of tools in a model's own format: the wire forms, and the ids around calls and results.

The protocol `tools` loads this package when an episode with tools begins.
"""
