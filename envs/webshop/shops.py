"""One catalogue per process and arguments, for all instances that play in it."""

from __future__ import annotations

import threading

from ragen_envs.webshop import made_up, original
from ragen_envs.webshop.catalogue import Catalogue

_shared: dict[tuple[str | None, int | None], Catalogue] = {}
_lock = threading.Lock()


def shared(data_dir: str | None, products: int | None) -> Catalogue:
    """Return the catalogue of these arguments, built at the first call in this process."""
    with _lock:
        key = (data_dir, products)
        if key not in _shared:
            _shared[key] = made_up.build(products) if data_dir is None else original.load(data_dir, products)
        return _shared[key]
