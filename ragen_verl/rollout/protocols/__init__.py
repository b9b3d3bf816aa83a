"""The built-in protocols, one file for each; `ragen_verl.rollout.protocol` finds them by name."""
