"""The qualification kit, `ragen-verl qualify`: it checks what a machine can run, its numbers, and its speed.

A part is a module with `run(outcome, settings)`. It runs in a process of its own (`part`) with a time limit (`kit`).
Nothing is installed or downloaded: models have random weights in the recipes' shapes (`shapes`), and the model that
learns is the nano model. `engine`, `reference` and `workers` use verl's own workers without Ray.
"""
