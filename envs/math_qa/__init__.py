"""Mathematics in words: MetaMathQA and GSM8K, from tables or generated."""

from ragen_envs.math_qa.env import GSM8K, MetaMathQA

__all__ = ["GSM8K", "MetaMathQA"]
