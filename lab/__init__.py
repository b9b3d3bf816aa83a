"""The laboratory beside the layer `ragen_verl`: it inspects, scores, compares and prepares runs.

The layer imports nothing of it. Its commands belong to `ragen-verl` through the entry point `ragen_verl.commands`; the
extra `ragen-verl[lab]` installs their further dependencies.
"""
