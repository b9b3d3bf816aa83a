"""Experiments that can fail: from the outcomes of runs to a verdict on a claim. Knows no verl."""
