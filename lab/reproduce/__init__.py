"""Experiments on the papers' claims: from the outcomes of runs to a decision. This package does not import verl."""
