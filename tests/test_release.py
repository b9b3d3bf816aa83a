"""What is published: one version and one address, a README whose links work on PyPI, a complete source archive."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_bytes

import pytest
import yaml
from paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_version_and_the_address_are_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert str(citation["version"]) == PROJECT["version"]
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert first and first[1].strip("[]") in ("Unreleased", PROJECT["version"])
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    address = PROJECT["urls"]["Repository"]
    assert {citation["repository-code"], site["repo_url"]} == {address}
    assert site["site_url"] == PROJECT["urls"]["Documentation"]
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for named in re.findall(r"git\+(https://[^\s\"'`]+)", page.read_text("utf-8")):
            assert named == address, page


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tarfile.TarFile:
    folder = tmp_path_factory.mktemp("sdist")
    inner = shutil.ignore_patterns("*.egg-info", "__pycache__")
    outer = shutil.ignore_patterns(".venv*", ".git", "build", "dist", "runs", "site", "outputs")

    def skip(at: str, names: list[str]) -> set[str]:
        return inner(at, names) | (outer(at, names) if at == str(ROOT) else set())

    shutil.copytree(ROOT, folder / "source", ignore=skip)
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--skip-dependency-check"]
    done = subprocess.run([*command, "--outdir", folder, folder / "source"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return tarfile.open(next(folder.glob("*.tar.gz")))


def test_the_source_archive_holds_docs_examples_and_tests(archive: tarfile.TarFile) -> None:
    held = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:  # a checkout, not an archive
        asked = ("docs/", "examples/", "tests/", "requirements/", "recipes/", "envs/", "lab/", "ragen_verl/")
        wanted = {name for name in listed.stdout.splitlines() if name.startswith(asked) and (ROOT / name).exists()}
        assert wanted - held == set()
    assert {"CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE", "Makefile", "mkdocs.yml"} <= held


def test_the_readme_on_pypi_has_no_relative_link(archive: tarfile.TarFile) -> None:
    (name,) = [name for name in archive.getnames() if re.fullmatch(r"[^/]+/PKG-INFO", name)]
    metadata = message_from_bytes(archive.extractfile(name).read())
    text = metadata.get_payload()
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) >= 10
    for link in links:
        assert link.startswith(("https://", "#")), link
        path = re.fullmatch(rf"{re.escape(PROJECT['urls']['Repository'])}/(?:blob|raw)/v[^/]+/([^#]+)(?:#.*)?", link)
        assert path is None or (ROOT / path[1]).exists(), link
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["Keywords"]
    assert len(metadata.get_all("Classifier")) >= 5 and len(metadata.get_all("Project-URL")) >= 4


def test_the_workflows_and_the_images_run_what_a_developer_runs() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    assert len(workflows) == 2
    steps = [s for w in workflows for job in yaml.safe_load(w.read_text())["jobs"].values() for s in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    commands += re.findall(r"^RUN (.*)$", "\n".join(f.read_text() for f in (ROOT / "docker").glob("*")), re.MULTILINE)
    assert ".ci/run" in commands
    for command in commands:
        for target in re.findall(r"^make ([a-z-]+)", command):
            assert target in targets, command
        for script in re.findall(r"\b(requirements/\w+\.py)", command):
            ast.parse((ROOT / script).read_text("utf-8"))
    copied = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv*"} <= set(copied)
