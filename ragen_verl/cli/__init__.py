"""The command line `ragen-verl`: parse, call, print. One small module per group of commands.

Nothing here imports torch, verl, Ray or vLLM before a command that needs them runs, so that `--help` is immediate.
"""

from ragen_verl.cli.app import app

__all__ = ["app"]
