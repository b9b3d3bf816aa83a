"""Questions whose answers have to be searched for."""

from ragen_envs.search_qa.env import SearchQA

__all__ = ["SearchQA"]
