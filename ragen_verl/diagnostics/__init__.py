"""Diagnostics of a run that collapses, and the verdict.

There are indicators, the train/inference mismatch, mutual information and the gradient signal.

`@indicator` and `@cause` add to it from any package or file. The types that a rule takes and returns are here as well.
"""

from ragen_verl.diagnostics import at_once as at_once  # registers built-in ones, as the next two lines do
from ragen_verl.diagnostics import causes as causes
from ragen_verl.diagnostics import echo_trap as echo_trap
from ragen_verl.diagnostics.performance import Performance, performance
from ragen_verl.diagnostics.registry import NOTE, WARNING, Evidence, cause, indicator
from ragen_verl.diagnostics.series import Series, Trace

__all__ = ["NOTE", "WARNING", "Evidence", "Performance", "Series", "Trace", "cause", "indicator", "performance"]
