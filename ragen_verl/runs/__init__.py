"""Runs: their start, their folders, sweeps of several runs, and plots."""
