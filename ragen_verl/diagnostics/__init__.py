"""What tells a healthy run from one that collapses: indicators, drift, mutual information, gradients, the verdict.

`@indicator` and `@cause` add to it from any package or file; what a rule is given and returns stands here as well.
"""

from ragen_verl.diagnostics import causes as causes  # registers the built-in ones, as the next line does
from ragen_verl.diagnostics import echo_trap as echo_trap
from ragen_verl.diagnostics.performance import Performance, performance
from ragen_verl.diagnostics.registry import NOTE, WARNING, Evidence, cause, indicator
from ragen_verl.diagnostics.series import Series, Trace

__all__ = ["NOTE", "WARNING", "Evidence", "Performance", "Series", "Trace", "cause", "indicator", "performance"]
