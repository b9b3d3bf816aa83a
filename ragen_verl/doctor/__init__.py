"""What is installed, what the machine has, in which processes the plugin loads, and what to do about what is wrong.

`diagnose` gathers facts; `problems.find` judges them without looking at the machine, so that it is tested on made-up
facts. Nothing here imports torch, verl, Ray or vLLM: what needs them runs in its own process (`probes`).
"""

from ragen_verl.doctor.facts import Facts, Probe, gather
from ragen_verl.doctor.problems import Problem, find

__all__ = ["Facts", "Probe", "Problem", "find", "gather"]
