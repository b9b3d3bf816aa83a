"""What a run's folder shows to people: one HTML page, a live view, episodes in the terminal.

Everything here reads folders, also unfinished, damaged and older ones, and writes nothing into them but the page. What
a model or an environment wrote is data: it is escaped wherever it is shown.
"""

from ragen_verl.report.page import render
from ragen_verl.report.reading import Run, read_run

__all__ = ["Run", "read_run", "render"]
