"""Single values that verl takes without a look and fails with later, or never: refused by key, value and words."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf
from recipe_composition import changed, composed
from refusals import refused

from ragen_verl.cli.prepare import prepare
from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.validation.composition import verl_defaults
from ragen_verl.validation.machine import check_folder
from ragen_verl.validation.model import check_folders, tokenizer_of
from ragen_verl.validation.recipe import check
from ragen_verl.validation.values import check_values
from ragen_verl.validation.verl_source import engines, estimators, field_choices, literal, optimizers, rollouts

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


@pytest.fixture(scope="module")
def good() -> DictConfig:
    config = composed("nano/frozen_lake")
    check(config, template=False)
    return config


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (f"{ACTOR}.loss_agg_mode=token_mean", "did you mean token-mean?"),
        (f"{ACTOR}.strategy=fsdp3", "did you mean fsdp"),
        (f"{ROLLOUT}.name=vlm", "did you mean vllm?"),
        (f"{ROLLOUT}.dtype=flot32", "did you mean float32?"),
        (f"{ROLLOUT}.top_p=2", "top_p is 2 but has to be above 0 and at most 1."),
        (f"{ROLLOUT}.val_kwargs.top_p=0", "above 0 and at most 1"),
        (f"{ROLLOUT}.top_k=-7", "-1 for all tokens"),
        (f"{ROLLOUT}.max_num_seqs=0", "1 or more"),
        (f"{ROLLOUT}.gpu_memory_utilization=1.5", "at most 1"),
        (f"{ROLLOUT}.tensor_model_parallel_size=2", "One engine takes 2 devices"),
        (f"{ROLLOUT}.val_kwargs.n=0", "1 or more"),
        (f"{ROLLOUT}.n=null", "rollout.n is None but has to be a whole number of 1 or more"),
        (f"{ROLLOUT}.temperature=.nan", "temperature is nan but has to be above 0"),
        (f"{ACTOR}.ppo_epochs=0", "1 or more"),
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu=0", "1 or more"),
        ("trainer.total_epochs=0", "1 or more"),
        ("trainer.max_actor_ckpt_to_keep=0", "1 or more"),
        ("trainer.save_freq=5.5", "has to be a whole number."),
        ("actor_rollout_ref.model.lora_rank=-1", "0 or more"),
        (f"{ACTOR}.optim.lr=-0.001", "0 or more"),
        (f"{ACTOR}.optim.lr_scheduler_type=cosin", "did you mean cosine?"),
        (f"{ACTOR}.optim.optimizer=AdamWW", "did you mean AdamW?"),
        ("critic.optim.weight_decay=-0.1", "0 or more"),
        ("critic.cliprange_value=-1", "above 0"),
        (f"{ACTOR}.optim.betas=[2,0]", "betas is [2, 0] but has to be numbers from 0 to below 1"),
        (f"{ACTOR}.fsdp_config.model_dtype=flot", "fp32, bf16 or fp16"),
        (f"{ACTOR}.fsdp_config.dtype=bf61", "fp32, bf16 or fp16"),
        (f"{ACTOR}.fsdp_config.mixed_precision.reduce_dtype=fp23", "fp32, bf16 or fp16"),
        (f"{ACTOR}.optim.optimizer_impl=torch.optin", "'torch.optin', which is not installed"),
        (f"{ACTOR}.optim.optimizer_impl=nosuch.optim", "'nosuch.optim', which is not installed"),
        (f"{ACTOR}.optim.lr_warmup_steps=1.5", "lr_warmup_steps is 1.5 but has to be a whole number"),
        (f"{ACTOR}.optim.min_lr_ratio=-1", "0 or more"),
        (f"{ACTOR}.fsdp_config.fsdp_size=-2", "has to be a number of -1 or more"),
        ("critic.grad_clip=.nan", "0 or more"),
        ("algorithm.kl_ctrl.horizon=-1", "0 or more"),
        (f"{ROLLOUT}.load_format=dumy", "did you mean dummy?"),
        (f"{ROLLOUT}.logprobs_mode=raw", "processed_logprobs"),
        (f"{ROLLOUT}.scheduling_policy=fifo", "verl knows fcfs, priority"),
        (f"{ROLLOUT}.mode=sync", "verl knows async"),
        (f"{ROLLOUT}.multi_turn.max_user_turns=3", "set ragen.rollout instead"),
        (f"{ROLLOUT}.cudagraph_capture_sizes=4", "has to be a list"),
        ("actor_rollout_ref.ref.strategy=fsdp3", "did you mean fsdp"),
        ("actor_rollout_ref.model.override_config.attn_implementation=flash", "eager, sdpa, varlen"),
        ("trainer.resume_mode=never", "auto, disable, resume_path"),
        (f"{ACTOR}.kl_loss_coef=-1", "0 or more"),
        ("actor_rollout_ref.model.lora_alpha=-1", "1 or more"),
        ("trainer.device=gpuu", "trainer.device is 'gpuu' but verl knows cpu, cuda, npu"),
        ("critic.loss_agg_mode=token-men", "did you mean token-mean?"),
        ("algorithm.kl_ctrl.type=fixd", "did you mean fixed?"),
        ("algorithm.gamma=1.1", "from 0 to 1"),
        ("data.seed=x", "whole number"),
        ("data.truncation=lef", "did you mean left?"),
        ("ragen.rollout.step_timeout=.inf", "has to be a number above 0"),
        ("ragen=null", "has no ragen block"),
        (f"{ACTOR}.optim=null", "optim is None but has to be a block of keys"),
        ("data=5", "data is 5 but has to be a block of keys"),
        ("algorithm.kl_ctrl=word", "has to be a block of keys"),
        (f"{ACTOR}.checkpoint.save_contents=5", "has to be a list"),
        (f"{ACTOR}.checkpoint.load_contents=0.5", "has to be a list"),
        (f"{ACTOR}.fsdp_config.entropy_checkpointing=word", "has to be true or false"),
        (f"{ROLLOUT}.mode=[a]", "has to be a text"),
        ("model_engine=word", "model_engine is 'word' but verl has dp"),
        (f"{ACTOR}.kl_loss_type=low_var", "did you mean low_var_kl?"),
        (f"{ACTOR}.clip_ratio_low=1", "above 0 and below 1"),
        (f"{ACTOR}.clip_ratio_high=null", "clip_ratio_high is None but has to be above 0"),
        (f"{ACTOR}.clip_ratio_c=1.0", "clip_ratio_c is 1.0 but has to be above 1"),
        (f"{ACTOR}.clip_ratio_c=null", "clip_ratio_c is None but has to be above 1"),
        (f"{ROLLOUT}.checkpoint_engine.backend=naiv", "did you mean naive?"),
        ("actor_rollout_ref.model.fused_kernel_options.impl_backend=tritn", "did you mean triton?"),
        ("actor_rollout_ref.model.path=null", "model.path is None, which is no folder on this machine"),
        ("actor_rollout_ref.model.tokenizer_path=/nowhere/model", "no folder on this machine"),
        ("actor_rollout_ref.model.lora_adapter_path=/nowhere/adapter", "no folder on this machine"),
        ("actor_rollout_ref.model.external_lib=no_such_module.part", "is not installed"),
    ],
)
def test_value_that_verl_cannot_work_with_is_refused(override: str, words: str, good: DictConfig) -> None:
    with refused(words):
        check(changed(good, override), template=False)


def test_verls_own_defaults_pass() -> None:
    config = OmegaConf.to_container(verl_defaults("dp"), resolve=False)
    plain = {key: value for key, value in config.items() if key in ("actor_rollout_ref", "critic", "algorithm")}
    texts = OmegaConf.to_container(OmegaConf.create(plain), resolve=False)
    known = {key: _without_references(value) for key, value in texts.items()}
    known["trainer"] = {"nnodes": 1, "n_gpus_per_node": 1}
    known["actor_rollout_ref"]["rollout"] |= {"prompt_length": 1, "response_length": 1}
    known["critic"]["ppo_mini_batch_size"] = 1
    check_values(known)


def _without_references(block):
    if isinstance(block, dict):
        return {key: _without_references(value) for key, value in block.items()}
    return None if isinstance(block, str) and ("${" in block or block == "???") else block


def test_choices_are_read_from_verls_source() -> None:
    assert {"fsdp", "fsdp2", "megatron"} <= engines() and {"vllm", "sglang"} <= rollouts()
    assert {"gae", "grpo"} <= estimators() and {"AdamW", "SGD"} <= optimizers()
    assert field_choices("verl.workers.config.FSDPOptimizerConfig")["lr_scheduler_type"] == {"constant", "cosine"}
    assert "token-mean" in field_choices("verl.workers.config.FSDPActorConfig")["loss_agg_mode"]
    assert field_choices("verl.workers.config.Nothing") == {}
    assert {"auto", "dummy"} <= literal("vllm.model_executor.model_loader", "LoadFormats")
    assert literal("vllm.nothing", "LoadFormats") == literal("nothing", "LoadFormats") == frozenset()


def test_unknown_estimator_is_refused_without_importing_verl() -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom ragen_verl.cli.prepare import prepare\nfrom ragen_verl.errors import RecipeError\n"
        "try:\n    prepare('nano/frozen_lake', ['algorithm.adv_estimator=grpoo'])\n"
        "except RecipeError as error:\n    print(error)\n"
        "assert not {'torch', 'verl'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "did you mean grpo?" in done.stdout


def test_folder_that_only_the_permissions_allow_is_refused() -> None:
    with refused("nothing can be written in /proc"):
        check_folder(Path("/proc/run"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"config.json": None}, "has no config.json with a model_type"),
        ({"config.json": b"null"}, "has no config.json with a model_type"),
        ({"config.json": b'{"a": '}, "has no config.json with a model_type"),
        ({"model.safetensors": None}, "has no weights"),
        ({"model.safetensors": b"0" * 100}, r"weights that cannot be read (model.safetensors: "),
        (
            {"model.safetensors.index.json": b'{"weight_map": {"a": "model-00002.safetensors"}}'},
            "cannot be read (model-0",
        ),
    ],
)
def test_half_a_model_is_refused_without_reading_sizes_from_it(
    change: dict[str, bytes | None], words: str, tmp_path: Path, good: DictConfig
) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(nano_model_path() / name, tmp_path)
    config = changed(good, f"critic.model.path={tmp_path}", "critic.enable=true")
    check_folders(config)
    for name, content in change.items():
        (tmp_path / name).unlink(missing_ok=True)
        if content is not None:
            (tmp_path / name).write_bytes(content)
    with refused(words):
        check_folders(config)
    check_folders(changed(config, "critic.enable=false"))


def test_empty_model_folder_is_refused(tmp_path: Path, good: DictConfig) -> None:
    with refused("holds no tokenizer"):
        tokenizer_of(changed(good, f"actor_rollout_ref.model.path={tmp_path}"), local=True)


def test_run_needs_a_block_and_may_have_a_number_as_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with refused("ragen.run"):
        prepare("nano/bandit", ["ragen.run=null"])
    assert prepare("nano/bandit", ["ragen.run.dir=2026"]).folder.path == tmp_path / "2026"
