"""Packs for a machine without a network: what is left out, how parts join, and what the machine does with them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

sys.path.insert(0, str(ROOT / "requirements"))
import pack

FREEZE = """\
# made by hand
torch==2.11.0+cu130
transformers==5.17.0
Mixed_Name.two==1.0 ; python_version > "3.11"
numpy @ file:///croot/numpy-2.5.2-cp312.whl
-e git+https://example.org/x.git#egg=x

"""
COMMAND = "import sys\nimport packed\nprint(packed.WORD, *sys.argv[1:])\nsys.exit(3)\n"
MODULES = [
    "verl.trainer.main_ppo",
    "verl.trainer.ppo.ray_trainer",
    "verl.trainer.ppo.core_algos",
    "verl.trainer.ppo.v1.trainer_sync",
    "verl.trainer.ppo.v1.trainer_colocate_async",
    "verl.trainer.ppo.v1.trainer_separate_async",
    "verl.trainer.ppo.v1.agent_loop_tq",
    "verl.trainer.ppo.v1.replay_buffer",
    "verl.workers.engine_workers",
    "verl.workers.engine.fsdp.transformer_impl",
    "verl.workers.rollout.llm_server",
    "verl.workers.rollout.replica",
    "verl.workers.rollout.vllm_rollout.vllm_rollout",
    "verl.workers.rollout.vllm_rollout.vllm_async_server",
    "verl.workers.rollout.vllm_rollout.utils",
    "verl.checkpoint_engine.base",
    "verl.experimental.agent_loop.agent_loop",
    "verl.experimental.reward_loop",
    "verl.trainer.sft_trainer",
    "verl.model_merger.fsdp_model_merger",
    "vllm.entrypoints.llm",
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.openai.cli_args",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.worker.gpu_worker",
    "vllm.v1.worker.gpu_model_runner",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.sample.sampler",
    "vllm.v1.attention.backends.triton_attn",
    "vllm.model_executor.models.qwen2",
    "vllm.model_executor.models.qwen3",
    "vllm.model_executor.layers.fused_moe",
    "vllm.v1.structured_output",
    "vllm.lora.peft_helper",
    "vllm.compilation.backends",
    "vllm.tool_parsers",
    "ragen_verl.training.trainer",
    "ragen_verl.training.agent_loop",
]
BLOCKED = """
import importlib, json, sys
from importlib.abc import MetaPathFinder

blocked = set(json.loads(sys.argv[1]))

class Block(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in blocked):
            raise ModuleNotFoundError(f"No module named {name!r}: the packs leave it out", name=name)

sys.meta_path.insert(0, Block())
for name in sys.argv[2:]:
    importlib.import_module(name)
print("all were imported")
"""


def test_the_names_of_a_freeze_are_read_however_a_package_came() -> None:
    assert pack.names(FREEZE) == ["torch", "transformers", "Mixed_Name.two", "numpy"]


def test_files_that_nothing_imports_are_left_out(tmp_path: Path) -> None:
    kept = ["ray/__init__.py", "ray/train.py", "vllm/_C_stable_libtorch.abi3.so", "vllm/third_party/pynvml.py"]
    kept += ["vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", "verl/tests.py", "ray/dashboard/modules/job/sdk.py"]
    gone = ["ray/rllib/a/b.py", "ray/train/x.py", "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "vllm/vllm-rs", "bin/ray"]
    gone += ["ray/dashboard/client/build/index.js", "gymnasium/tests/a.py", "vllm/third_party/deep_gemm/include/x.h"]
    for name in kept + gone:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    pack.trim(tmp_path)
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file()) == sorted(kept)


@given(st.binary(min_size=1, max_size=3000), st.integers(64, 900))
def test_parts_are_as_small_as_asked_and_join_to_the_whole(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, size: int
) -> None:
    folder = tmp_path_factory.mktemp("packs")
    (folder / "site").mkdir()
    (folder / "site" / "data").write_bytes(data)
    parts = pack.pack(folder / "site", folder / "trainer.tar.xz", size)
    assert max(part.stat().st_size for part in parts) <= size and not (folder / "trainer.tar.xz").exists()
    joined = folder / "joined"
    joined.write_bytes(b"".join(part.read_bytes() for part in parts))
    shutil.unpack_archive(joined, folder / "out", "xztar")
    assert (folder / "out" / "site" / "data").read_bytes() == data


@pytest.fixture
def packs(tmp_path: Path) -> Path:
    """A folder as `pack.py` leaves it: two groups of several parts each, and a command that imports another file."""
    found: dict[str, dict[str, str]] = {}
    for group, files in {
        "trainer": {"ragen_verl/__main__.py": COMMAND, "packed.py": f"WORD = {'packed' * 200!r}[:6]\n"},
        "vllm": {"vllm/__init__.py": "".join(map(chr, range(32, 500)))},
    }.items():
        for name, text in files.items():
            file = tmp_path / "made" / group / "site" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        parts = pack.pack(tmp_path / "made" / group / "site", tmp_path / "made" / f"{group}.tar.xz", 150)
        assert len(parts) > 1
        found[group] = {part.name: hashlib.sha256(part.read_bytes()).hexdigest() for part in parts}
    (tmp_path / "made" / "packs.json").write_text(json.dumps(found))
    shutil.copy(ROOT / "requirements" / "box.py", tmp_path / "made")
    return tmp_path / "made"


def box(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess:
    """`box.py` beside packs, in a Python that has nothing of ours."""
    where = [] if "--to" in arguments else ["--to", folder.parent / "there"]
    command = [sys._base_executable, folder / "box.py", *where, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_packs_are_kept_until_their_group_is_whole(packs: Path, tmp_path: Path) -> None:
    files = sorted(packs.glob("*.tar.xz.*"))
    for number, file in enumerate(files):
        call = tmp_path / f"call{number}"
        call.mkdir()
        for one in (file, packs / "packs.json", packs / "box.py"):
            shutil.copy(one, call)
        done = box(call)
        assert done.returncode == 0
        if number == 0:
            assert "trainer: 1 of " in done.stdout and "missing: trainer.tar.xz.01" in done.stdout
    assert "missing" not in done.stdout
    assert not list((tmp_path / "there").glob("*.xz*"))
    run = box(call, "qualify", "--minutes", "5")
    assert (run.stdout.strip(), run.returncode) == ("packed qualify --minutes 5", 3), run.stderr


def test_a_command_runs_with_the_groups_that_are_whole(packs: Path) -> None:
    (packs / "vllm.tar.xz.01").unlink()
    done = box(packs, "qualify")
    assert "missing: vllm.tar.xz.01" in done.stdout and "packed qualify" in done.stdout
    (packs / "trainer.tar.xz.00").unlink()
    done = box(packs, "--to", packs.parent / "elsewhere", "qualify")
    assert done.returncode == 1 and "bring the missing" in done.stderr


def test_a_damaged_pack_is_refused(packs: Path) -> None:
    part = packs / "trainer.tar.xz.00"
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    done = box(packs)
    assert done.returncode == 1 and "damaged" in done.stderr


def test_what_is_left_out_is_imported_by_nothing_that_trains() -> None:
    if "flashinfer-python" not in {one.name for one in importlib.metadata.distributions()}:
        pytest.skip("vLLM for CUDA is not installed: `make test-gpu-install`")
    left_out = set(" ".join(pack.LEFT_OUT.values()).split())
    modules = [
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if {owner.lower().replace("_", "-") for owner in owners} <= left_out
    ]
    folders = [pattern[:-2].replace("/", ".") for pattern in pack.TRIMMED if pattern.startswith(("ray", "vllm"))]
    assert {"flashinfer", "tilelang", "mistral_common"} <= set(modules)
    done = forked.run(BLOCKED, json.dumps(modules + [one for one in folders if "*" not in one]), *MODULES)
    assert "all were imported" in done.stdout, done.stderr[-3000:]


@pytest.mark.slow
def test_the_packs_of_a_machine_that_has_torch(tmp_path: Path) -> None:
    if not shutil.which("uv"):
        pytest.skip("uv is not installed: pip install uv")
    (tmp_path / "freeze.txt").write_text("torch==2.11.0\ntransformers==5.17.0\nnumpy==2.5.2\npandas==3.0.0\n")
    command = [sys.executable, ROOT / "requirements" / "pack.py", tmp_path, "--box", tmp_path / "freeze.txt"]
    subprocess.run([*command, "--part", "20"], check=True)
    files = list(tmp_path.glob("trainer.tar.xz.*"))
    assert len(files) > 1 and max(file.stat().st_size for file in files) <= 20 * 2**20
    assert box(tmp_path).returncode == 0
    site = tmp_path.parent / "there" / "site"
    there = {one.name.partition("-")[0] for one in site.glob("*.dist-info")}
    assert {"verl", "ray", "tensordict", "ragen_verl", "hydra_core"} <= there
    assert not {"torch", "transformers", "numpy", "pandas", "nvidia_cublas"} & there
