"""The recipe's `ragen:` block as dataclasses: what verl has no key for, read once and typed.

One file per block; `schema` turns YAML into them, `recipe` joins them.
"""

from ragen_verl.config.recipe import RagenConfig, register_resolvers
from ragen_verl.config.schema import nearest, unresolved

__all__ = ["RagenConfig", "nearest", "register_resolvers", "unresolved"]
