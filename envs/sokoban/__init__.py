"""Sokoban: the environment, its variants and the generator of its levels."""

from ragen_envs.sokoban.env import CoordSokoban, LargerSokoban, Sokoban, SokobanNewVocab

__all__ = ["CoordSokoban", "LargerSokoban", "Sokoban", "SokobanNewVocab"]
