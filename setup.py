"""The one thing pyproject.toml cannot say: three import packages that live in folders of other names.

`envs/` is imported as `ragen_envs` and `recipes/` as `ragen_verl.recipes`, so that the repository's top level
shows what people look for.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["ragen_verl", "ragen_verl.*"]),
        "ragen_envs",
        "ragen_envs.webshop",
        "ragen_verl.recipes",
        "ragen_verl.recipes.algorithm",
        "ragen_verl.recipes.env",
        "ragen_verl.recipes.hardware",
        "ragen_verl.recipes.nano",
        "ragen_verl.recipes.paper",
        "ragen_verl.recipes.tables",
    ],
    package_dir={"ragen_envs": "envs", "ragen_verl.recipes": "recipes"},
    package_data={
        "ragen_envs": ["data/*"],
        "ragen_verl.recipes": ["*.yaml", "*.md"],
        "ragen_verl.recipes.algorithm": ["*.yaml"],
        "ragen_verl.recipes.env": ["*.yaml"],
        "ragen_verl.recipes.hardware": ["*.yaml"],
        "ragen_verl.recipes.nano": ["*.yaml", "*.md"],
        "ragen_verl.recipes.paper": ["*.yaml", "*.md"],
        "ragen_verl.recipes.tables": ["*.yaml"],
        "ragen_verl.cpu.nano": ["weights/*"],
    },
)
