"""Recipes as Hydra configs, importable so that `--config-path pkg://ragen_verl.recipes` finds them.

`ragen.yaml` is the base; `algorithm/`, `env/` and `hardware/` are config groups a recipe picks from; `paper/` and
`nano/` are the recipes one runs. README.md in this folder has the table.
"""
