"""WebShop (arXiv 2207.01206) in pure Python: shop, search, goals and score."""

from ragen_envs.webshop.env import WebShop

__all__ = ["WebShop"]
