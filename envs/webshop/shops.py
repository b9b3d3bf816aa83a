"""One catalogue for each process and set of arguments, shared by all instances."""

from __future__ import annotations

from ragen_envs.common.shared import Shared, share
from ragen_envs.webshop import made_up, original
from ragen_envs.webshop.catalogue import Catalogue

__all__ = ["open_shop"]


def open_shop(data_dir: str | None, products: int | None) -> Shared[Catalogue]:
    """Return the catalogue of these arguments, built at the first call in this process."""
    return share(_build, data_dir, products)


def _build(data_dir: str | None, products: int | None) -> Catalogue:
    return made_up.build(products) if data_dir is None else original.load(data_dir, products)
