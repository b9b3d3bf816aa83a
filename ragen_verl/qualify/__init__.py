"""The qualification kit, `ragen-verl qualify`: what a machine can run, whether its numbers are right, and how fast.

A part is a module with `run(outcome, settings)`, started in a process of its own (`part`) and bounded in time (`kit`).
Nothing is installed or downloaded: models have random weights in the recipes' shapes (`shapes`), and what learns is the
nano model. `engine`, `reference` and `workers` use verl's own workers without Ray.
"""
