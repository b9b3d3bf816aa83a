"""The two things pyproject.toml cannot say: import packages that live in folders of other names, and a README for PyPI.

`lab/` is imported as `ragen_lab`, `envs/` as `ragen_envs` and `recipes/` as `ragen_verl.recipes`, so that the
repository's top level shows what people look for. `requirements/` goes along for its lock, which
`ragen-verl doctor` reads. PyPI shows the README without the repository, so its relative links become absolute.
"""

import re
import tomllib
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
DATA = (".yaml", ".md", ".txt", ".json", ".safetensors", ".lock", ".j2", ".css", ".js")


def package(name: str, folder: str) -> list[str]:
    """`name` and its subpackages, which are the subfolders of `folder`, with or without Python in them."""
    return [name] + [
        ".".join((name, *path.relative_to(ROOT / folder).parts))
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_dir() and path.name != "__pycache__"
    ]


def readme() -> str:
    """README.md with links into the repository at this version's tag, and pictures as raw files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    address, tag = project["urls"]["Repository"], "v" + project["version"]
    text = (ROOT / "README.md").read_text("utf-8")
    text = re.sub(r"(!\[[^]]*\]\()(?!\w+:)", rf"\g<1>{address}/raw/{tag}/", text)
    return re.sub(r"(?<!!)(\[[^]]*\]\()(?!\w+:|#)", rf"\g<1>{address}/blob/{tag}/", text)


setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    packages=[
        *find_packages(include=["ragen_verl", "ragen_verl.*"]),
        *package("ragen_lab", "lab"),
        *package("ragen_envs", "envs"),
        *package("ragen_verl.recipes", "recipes"),
        "ragen_verl.requirements",
    ],
    package_dir={
        "ragen_lab": "lab",
        "ragen_envs": "envs",
        "ragen_verl.recipes": "recipes",
        "ragen_verl.requirements": "requirements",
    },
    package_data={"": [f"*{ending}" for ending in DATA] + ["py.typed", "*.pyi"]},
)
