"""The doctor: it reports versions, the machine, the processes in which the plugin loads, and how to fix problems.

`facts.gather` collects facts; `problems.find` judges them without access to the machine, so that tests can use invented
facts. Nothing here imports torch, verl, Ray or vLLM: checks that need them run in their own processes (`probes`).
"""

from ragen_verl.doctor.facts import Facts, Probe, gather
from ragen_verl.doctor.problems import Problem, find

__all__ = ["Facts", "Probe", "Problem", "find", "gather"]
