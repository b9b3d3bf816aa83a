"""Views of a run's folder: one HTML page, a live view, and episodes in the terminal.

The modules read folders, also unfinished, damaged and older ones, and write only the page into them. The texts of a
model or an environment are data and are always escaped.
"""

from ragen_lab.report.opening import opened
from ragen_lab.report.page import render
from ragen_lab.report.reading import Run, read_run

__all__ = ["Run", "opened", "read_run", "render"]
