"""Environments of other packages by an id with a prefix, like "gymnasium:Taxi-v3": one module per package.

Nothing is imported before an id asks for it. `ragen_verl.env.registry` finds the adapters by their entry points.
"""
