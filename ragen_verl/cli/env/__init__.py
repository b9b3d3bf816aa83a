"""`ragen-verl env`: list, show, play and check environments, a module each."""

# each module adds its command to `group`; the order is that of `--help`
from ragen_verl.cli.env import listing, show, play, check  # noqa: F401, I001
from ragen_verl.cli.env.arguments import group, parse_kwargs

__all__ = ["group", "parse_kwargs"]
