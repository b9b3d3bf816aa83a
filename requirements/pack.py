"""What a machine with torch and transformers, but without a network, lacks: packages in packs of a few MiB.

    python requirements/pack.py FOLDER --box FREEZE [--vllm VERSION] [--part MIB]

Runs where there is a network and needs uv, but nothing of this project. `--box` names a file with the other machine's
`pip freeze`: what it names is there and stays as it is, whatever version others ask for. `--vllm` adds vLLM for CUDA.
The packs come in groups, `trainer` and `vllm`; each file has at most `--part` MiB, with `box.py`, which takes them on
the other machine and runs `ragen-verl` there, and `packs.json`, their checksums.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ["--python-version=3.12", "--python-platform=x86_64-manylinux_2_39"]
LEFT_OUT = {
    "kernels of other attention back ends and of mixtures of experts": (
        "flashinfer-python flashinfer-cubin nvidia-cutlass-dsl nvidia-cudnn-frontend quack-kernels tilelang "
        "tokenspeed-mla tokenspeed-triton humming-kernels cuda-tile cuda-python"
    ),
    "images, sound, video": "av torchcodec qwen-vl-utils opencv-python-headless",
    "tokenizers, formats and protocols of other models": "mistral-common gguf anthropic mcp",
    "constrained output by other libraries than xgrammar": "outlines-core lm-format-enforcer lark",
    "Ray's dashboard, telemetry, loggers": (
        "opencensus opentelemetry-api opentelemetry-sdk opentelemetry-exporter-otlp opentelemetry-exporter-prometheus "
        "opentelemetry-proto opentelemetry-semantic-conventions-ai py-spy colorful aiohttp-cors virtualenv smart-open "
        "wandb depyf"
    ),
    "rewards, tools and commands that no recipe uses": (
        "mbridge mathruler cwevals pylatexenc fastapi-cli fastapi-cloud-cli supervisor fastsafetensors pybind11 "
        "pytest-asyncio pytest-rerunfailures pre-commit sentry-sdk"
    ),
}
"""Packages that no module of verl's trainer, its workers and vLLM's engine imports for a text model on one node."""
TRIMMED = (
    *(f"ray/{name}/*" for name in ("rllib", "tune", "serve", "train", "data", "llm", "jars", "cpp", "air")),
    *(f"ray/{name}/*" for name in ("dag/tests", "dashboard/client", "core/src/ray/gcs/tests")),
    *(f"vllm/{name}" for name in ("vllm-rs", "_flashmla*", "_qutlass*", "_moe_C*", "vllm_flash_attn/_vllm_fa2_C*")),
    *(f"vllm/third_party/{name}/*" for name in ("deep_gemm", "flashmla", "fmha_sm100")),
    "bin/*",
    "*/tests/*",
)
"""Files that are left out, as patterns of `fnmatch` (a star also matches slashes)."""


def main() -> None:
    """Resolves, installs into folders, trims and packs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--box", type=Path, required=True, help="the other machine's pip freeze")
    parser.add_argument("--vllm", help="the version of vLLM to add, for CUDA")
    parser.add_argument("--part", type=int, default=58, help="MiB of a pack at most")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    packs: dict[str, dict[str, str]] = {}
    for group, pins in groups(options.folder, options.box, options.vllm).items():
        site = options.folder / group / "site"
        install(site, pins, own=group == "trainer")
        trim(site)
        parts = pack(site, options.folder / f"{group}.tar.xz", options.part * 2**20)
        packs[group] = {part.name: hashlib.sha256(part.read_bytes()).hexdigest() for part in parts}
        sizes = ", ".join(f"{part.name} {part.stat().st_size / 2**20:.1f} MiB" for part in parts)
        print(f"{group}: {len(pins)} packages in {len(parts)} packs: {sizes}", flush=True)
        shutil.rmtree(site.parent)
    (options.folder / "packs.json").write_text(json.dumps(packs, indent=1) + "\n")
    shutil.copy(ROOT / "requirements" / "box.py", options.folder)
    print("Bring the packs with box.py and packs.json, all or a few at a time, and run: python3 box.py")


def groups(folder: Path, box: Path, vllm: str | None) -> dict[str, list[str]]:
    """Name of a group -> its packages, `name==version`: what the trainer lacks, and what vLLM lacks besides."""
    there = folder / "there.txt"
    there.write_text("\n".join(sorted({*names(box.read_text()), *" ".join(LEFT_OUT.values()).split()})) + "\n")
    whole = folder / "whole.txt"
    whole.write_text("")
    if vllm:
        whole.write_text("\n".join(resolve(f"ragen-verl[lab,gpu] @ file://{ROOT}\nvllm=={vllm}\n", there)) + "\n")
    trainer = resolve(f"ragen-verl[lab] @ file://{ROOT}\n", there, f"--constraints={whole}")
    both = whole.read_text().split("\n")[:-1]
    for file in (there, whole):
        file.unlink()
    return {"trainer": trainer, "vllm": [pin for pin in both if pin not in trainer]} if vllm else {"trainer": trainer}


def names(freeze: str) -> list[str]:
    """The packages of a `pip freeze`: pinned ones, files and archives (`name @ file`), not editable ones."""
    lines = (line.strip() for line in freeze.splitlines())
    return [found[0] for line in lines if (found := re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line))]


def resolve(wanted: str, there: Path, *more: str) -> list[str]:
    """The packages of the other machine's Python that `wanted` needs, without those that are there and their needs."""
    options = [*TARGET, f"--excludes={there}", "--no-header", "--no-annotate", "--no-emit-package=ragen-verl", *more]
    command = ["uv", "pip", "compile", "-q", *options, "-"]
    found = subprocess.run(command, input=wanted, stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout.split("\n")[:-1]


def install(site: Path, pins: Iterable[str], own: bool) -> None:
    """Installs packages, and this project too if it is `own`, into a folder of the other machine's Python."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools would pack what an earlier build left there
    command = ["uv", "pip", "install", "-q", "--no-deps", "--link-mode=copy", *TARGET, f"--target={site}", *pins]
    subprocess.run(command + [str(ROOT)] * own, check=True)


def trim(site: Path) -> None:
    """Removes the files that `TRIMMED` names."""
    for file in [one for one in site.rglob("*") if not one.is_dir()]:
        path = str(file.relative_to(site))
        if any(fnmatchcase(path, pattern) for pattern in TRIMMED):
            file.unlink()


def pack(site: Path, archive: Path, size: int) -> list[Path]:
    """Packs a folder and cuts the archive into parts of at most `size` bytes; the archive itself is removed."""
    with lzma.open(archive, "wb", preset=6) as file, tarfile.open(fileobj=file, mode="w") as tar:
        tar.add(site, site.name)
    parts = []
    with archive.open("rb") as file:
        while data := file.read(size):
            parts.append(archive.with_name(f"{archive.name}.{len(parts):02}"))
            parts[-1].write_bytes(data)
    archive.unlink()
    return parts


if __name__ == "__main__":
    sys.exit(main())
