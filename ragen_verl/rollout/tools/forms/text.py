"""For models whose chat template knows no tools: the tools stand in the system message, calls are Hermes' as text."""

from __future__ import annotations

from ragen_verl.rollout.tools.form import call_form
from ragen_verl.rollout.tools.forms.hermes import Hermes

__all__ = ["Text"]


@call_form("text")
class Text(Hermes):
    """Hermes' form, explained in the system message; results come in a user message."""
