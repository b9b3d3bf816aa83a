"""Runs as people see them: starting one, its folder, sweeps of several, pictures."""
