"""Environments of other packages, by ids with a prefix such as "gymnasium:Taxi-v3"; each package has one module.

A package is imported when one of its ids is used. `ragen_verl.env.registry` finds the adapters by their entry points.
"""
