"""The built-in wire forms, one file for each; `ragen_verl.rollout.tools.form` finds them by name."""
