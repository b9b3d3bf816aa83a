"""The laboratory's commands, which `add_commands` adds to `ragen-verl`. A module a command: parse, call, print."""

from ragen_lab.cli.commands import add_commands, add_env_commands

__all__ = ["add_commands", "add_env_commands"]
