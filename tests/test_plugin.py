"""The plugin in processes of its own, as verl and vLLM load it, and the patches of the CPU path."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
from forked import run
from stacks import on_cpu_stack

from ragen_verl import vllm_plugin
from ragen_verl.patches import critic


def test_workers_begin_with_vllm_and_without_ray() -> None:
    code = "import sys; print('vllm.v1.worker.cpu_worker' in sys.modules, 'ray' in sys.modules)"
    assert run(code).stdout == "True False\n"


def test_importing_verl_is_enough() -> None:
    done = run(
        "import verl\n"
        "from ragen_verl.plugin import STATUS\n"
        "from verl.trainer.ppo.v1 import get_trainer_cls\n"
        "from verl.experimental.agent_loop.agent_loop import _agent_loop_registry\n"
        "print(STATUS['loaded'], STATUS['registered'])\n"
        "print(get_trainer_cls('ragen_sync').__name__, _agent_loop_registry['ragen']['_target_'])",
        VERL_PLATFORM="cpu",
    )
    assert done.stdout.startswith("True"), done.stderr
    for name in ("trainer:ragen_sync", "agent_loop:ragen", "patch:platform"):
        assert name in done.stdout
    assert "RagenTrainer ragen_verl.training.agent_loop.RagenAgentLoop" in done.stdout


def test_a_plugin_that_fails_says_so_although_verl_swallows_it() -> None:
    done = run("import sys; sys.modules['ragen_verl.resolvers'] = None; import verl; print('verl is there')")
    assert "verl is there" in done.stdout
    assert "ragen-verl doctor" in done.stderr
    assert "ragen_verl.resolvers" in done.stderr


def test_the_cpu_is_no_platform_where_an_accelerator_is_named() -> None:
    code = "import verl; from ragen_verl.plugin import STATUS; print(STATUS['registered'])"
    done = run(code, VERL_PLATFORM="nvidia")
    assert "trainer:ragen_sync" in done.stdout and "patch:platform" not in done.stdout


def test_a_driver_that_joins_a_cluster_is_no_cpu_machine() -> None:
    code = "import verl; from ragen_verl.plugin import STATUS; print(STATUS['registered'])"
    done = run(code, RAY_ADDRESS="192.0.2.1:6379")
    assert "trainer:ragen_sync" in done.stdout and "patch:platform" not in done.stdout


def test_other_vllm_processes_import_nothing_of_verl() -> None:
    code = (
        "import sys\nfrom importlib.metadata import entry_points\n"
        "(point,) = entry_points(group='vllm.general_plugins', name='ragen_verl')\n"
        "point.load()()\nprint({'verl', 'torch', 'vllm', 'ray', 'omegaconf'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "set()\n"


def test_settings_of_the_user_stay() -> None:
    code = "import verl, os; print(os.environ['OMP_NUM_THREADS'], os.environ['VLLM_CPU_KVCACHE_SPACE'])"
    assert run(code, VERL_PLATFORM="cpu", OMP_NUM_THREADS="7", VLLM_CPU_KVCACHE_SPACE="3").stdout.split() == ["7", "3"]


@pytest.mark.parametrize(("program", "left"), [("verl.trainer.main_ppo", "None"), ("other.py", "")])
def test_ray_counts_no_devices_that_are_hidden_on_the_cpu(program: str, left: str) -> None:
    code = (
        f"import os, sys; sys.argv[0] = {program!r}; import verl\n"
        "from ray._private.accelerators.nvidia_gpu import NvidiaGPUAcceleratorManager as gpus\n"
        "print(os.environ.get('CUDA_VISIBLE_DEVICES'), gpus.get_current_process_visible_accelerator_ids(), sep='|')"
    )
    done = run(code, VERL_PLATFORM="cpu", CUDA_VISIBLE_DEVICES="")
    assert done.stdout.strip() == f"{left}|{None if left else []}", done.stderr


def test_the_critic_patch_leaves_a_mended_verl_alone() -> None:
    def load_valuehead_model(local_path, torch_dtype, model_config, trust_remote_code):
        return "as configured"

    module = ModuleType("verl.utils.model")
    module.load_valuehead_model = load_valuehead_model
    critic.critic_without_flash_attention(module)
    assert module.load_valuehead_model is load_valuehead_model


def test_linear_patch_leaves_a_vllm_that_keeps_weights_alone() -> None:
    def dispatch_cpu_unquantized_gemm(layer):
        return layer

    module = ModuleType("vllm.model_executor.layers.utils")
    module.dispatch_cpu_unquantized_gemm = dispatch_cpu_unquantized_gemm
    vllm_plugin.keep_linear_weights(module)
    assert module.dispatch_cpu_unquantized_gemm is dispatch_cpu_unquantized_gemm


@on_cpu_stack
def test_ranks_are_counted_without_a_compiler_on_the_cpu() -> None:
    done = run(
        "import torch; from ragen_verl.vllm_plugin import register_vllm; register_vllm()\n"
        "from vllm.v1.sample import sampler\n"
        "logits = torch.tensor([[3.0, 1.0, 2.0], [5.0, 6.0, 5.5]])\n"
        "print(sampler.batched_count_greater_than(logits, torch.tensor([[2.0], [6.0]])).tolist())\n"
        "print(hasattr(sampler.batched_count_greater_than, '_torchdynamo_orig_callable'))"
    )
    assert done.stdout.splitlines() == ["[2, 1]", "False"], done.stderr


def test_ranks_stay_compiled_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("vllm.v1.sample.sampler")  # with no other name, as in vLLM 0.24 to 0.31
    module.batched_count_greater_than = compiled = SimpleNamespace(_torchdynamo_orig_callable=len)
    monkeypatch.setattr("vllm.platforms.current_platform", SimpleNamespace(is_cpu=lambda: False))
    vllm_plugin.compile_no_ranks(module)
    assert module.batched_count_greater_than is compiled
    monkeypatch.setattr("vllm.platforms.current_platform", SimpleNamespace(is_cpu=lambda: True))
    vllm_plugin.compile_no_ranks(module)
    assert module.batched_count_greater_than is len
    vllm_plugin.compile_no_ranks(module)  # a vLLM that compiles nothing
    assert module.batched_count_greater_than is len


def test_our_trainer_can_be_the_first_import() -> None:
    done = run(
        "import ragen_verl.training.trainer; from verl.trainer.ppo.v1 import get_trainer_cls\n"
        "print(get_trainer_cls('ragen_sync').__name__)"
    )
    assert done.stdout == "RagenTrainer\n" and "stays as it is" not in done.stderr, done.stderr


def test_device_is_both_a_device_and_an_index() -> None:
    torch = pytest.importorskip("torch")
    from ragen_verl.cpu.platform import CpuDevice

    device = CpuDevice("cpu")
    assert torch.zeros(1).to(device).device.type == "cpu"
    assert f"cpu:{device}" == "cpu:0"
