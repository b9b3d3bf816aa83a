"""The recipe's `ragen:` block as typed dataclasses: the settings for which verl has no key.

There is one file for each block; `schema` makes the dataclasses from YAML, `recipe` holds the whole block.
"""

from ragen_verl.config.recipe import RagenConfig
from ragen_verl.config.schema import nearest, unresolved

__all__ = ["RagenConfig", "nearest", "unresolved"]
