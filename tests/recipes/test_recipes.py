"""Every recipe composes, passes our checks and verl's own validation, and states what it depends on.

What is not checked here, for lack of the hardware and of megatron-core: that verl's workers start with the composed
values. For Megatron verl's validation stops at its dataclasses, which do not import megatron.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import forked
import pytest
import ragen_verl.recipes
from env_servers import serving
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from ragen_lab.reproduce.sweep import Sweep, packaged
from recipe_composition import _composed, changed, composed, hydra_finds_verl, verl_accepts
from small_qwen import save_model_folder, save_tokenizer

from ragen_verl.errors import RecipeError
from ragen_verl.validation.recipe import check

ROOT = Path(ragen_verl.recipes.__path__[0])
PAPER = sorted(f"paper/{file.stem}" for file in (ROOT / "paper").glob("*.yaml"))
NANO = sorted(f"{folder}/{file.stem}" for folder in ("nano", "small") for file in (ROOT / folder).glob("*.yaml"))
GPU = ("gpu", "gpu_lora", "gpu_offload", "gpu_megatron")
ALGORITHMS = sorted(file.stem for file in (ROOT / "algorithm").glob("*.yaml"))


def paper(tiny_model: str, *overrides: str, recipe: str = "paper/sokoban_starpo_s") -> DictConfig:
    return composed(recipe, f"actor_rollout_ref.model.path={tiny_model}", *overrides)


@pytest.fixture(scope="session")
def good(tiny_model: str) -> DictConfig:
    config = paper(tiny_model)
    check(config)
    return config


def test_files_are_read_once_for_all_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    first = _composed.__wrapped__("nano/bandit", ())
    monkeypatch.setattr(OmegaConf, "load", None)
    assert _composed.__wrapped__("nano/bandit", ()) == first


def test_there_is_a_recipe_for_every_environment_and_algorithm() -> None:
    algorithms = ("starpo_ppo", "starpo_grpo", "starpo_s")
    assert {f"paper/{env}_{a}" for env in ("bandit", "sokoban", "frozen_lake") for a in algorithms} <= set(PAPER)


@pytest.mark.parametrize("recipe", PAPER + NANO)
def test_first_comment_is_the_command(recipe: str) -> None:
    lines = (ROOT / f"{recipe}.yaml").read_text().splitlines()
    assert lines[:2] == ["# @package _global_", f"# ragen-verl train {recipe}"]


# every recipe on its own hardware; other hardware once per algorithm, since environments do not touch it
@pytest.mark.parametrize(
    ("recipe", "hardware"),
    [
        *((recipe, "gpu") for recipe in PAPER),
        *(
            pytest.param(recipe, hardware, marks=[] if recipe == "paper/sokoban_starpo_s" else pytest.mark.slow)
            for recipe in PAPER
            for hardware in GPU[1:]
            if "sokoban" in recipe
        ),
    ],
)
def test_paper_recipe_passes_our_checks_and_verls(
    recipe: str, hardware: str, tiny_model: str, local_tables: dict[str, list[str]]
) -> None:
    local = local_tables.get(recipe.removeprefix("paper/").removesuffix("_ragen2"), [])
    config = paper(tiny_model, f"hardware={hardware}", *local, recipe=recipe)
    check(config)
    verl_accepts(config)


# what they vary, or need more of, is the number of groups
OTHER_SIZES = {f"tables/{name}" for name in ("ragen_figure10", "ragen2_table8", "ragen2_gradient_buckets")}


# of the long tables the last variant here, all of them with the slow tests
LAST, EVERY = slice(-1, None), slice(None)


@pytest.mark.parametrize(
    ("name", "part"),
    [(name, LAST if "ragen2_" in name else EVERY) for name in sorted(packaged())]
    + [pytest.param(name, EVERY, marks=pytest.mark.slow) for name in sorted(packaged()) if "ragen2_" in name],
)
def test_every_run_of_a_table_passes_our_checks(
    name: str, part: slice, tiny_model: str, local_tables: dict[str, list[str]]
) -> None:
    sweep = Sweep.read(Path(name))
    for variant, seed, folder in list(sweep.runs(Path("runs")))[: len(sweep.variants)][part]:
        overrides = sweep.overrides_of(variant, seed, folder)
        model = f"actor_rollout_ref.model.path={'${ragen_nano:}' if 'nano/' in sweep.recipe else tiny_model}"
        local = next((rows for env, rows in local_tables.items() if f"env={env}" in overrides), [])
        config = composed(sweep.recipe, *overrides, *local, model)
        check(config)
        groups, per_update = config.ragen.train.envs[0].groups, config.actor_rollout_ref.actor.ppo_mini_batch_size
        members = config.actor_rollout_ref.rollout.n
        if (name, variant) == ("tables/ragen_table2", "members_1"):  # 32 of 128 in the original
            assert groups * members == 32
        elif name.startswith("tables/") and name not in OTHER_SIZES:
            assert groups * members == 128
        if name.startswith("tables/"):
            assert per_update * members == 32
        for title in sweep.published.get(variant, ()):
            _, *env, _ = sweep.panels[title].split("/")
            assert set(env) <= {one.get("name") or one.id.rpartition("-v")[0] for one in config.ragen.val.envs}


@pytest.mark.parametrize("recipe", NANO)
def test_nano_recipe_passes_our_checks_and_verls(recipe: str, tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() if recipe == "nano/mixture" else nullcontext() as server:
        if server:
            monkeypatch.setenv("RAGEN_VERL_ENV_URL", server.url)
        config = paper(tiny_model, recipe=recipe)
        check(config)
    verl_accepts(config)


# paper recipes differ in environment, algorithm and name alone (the next test), so one of each base stands for all
@pytest.mark.parametrize(
    "recipe",
    [
        *("paper/sokoban_starpo_s", "paper/sokoban_ragen2", "nano/bandit"),
        *(pytest.param(recipe, marks=pytest.mark.slow) for recipe in NANO if recipe != "nano/bandit"),
    ],
)
def test_every_recipe_takes_every_algorithm(recipe: str, tiny_model: str) -> None:
    # the environments do not matter, and two of them are on servers
    local = [f"ragen.{split}.envs=[{{id: Bandit-v0, groups: 16}}]" for split in ("train", "val")]
    for algorithm in ALGORITHMS:
        check(paper(tiny_model, f"algorithm={algorithm}", *local, recipe=recipe))


def test_paper_recipes_state_what_sets_them_apart() -> None:
    for recipe in PAPER:
        lines = (ROOT / f"{recipe}.yaml").read_text().splitlines()
        assert len(lines) == 5


def test_algorithms_differ_where_the_paper_says_so(tiny_model: str) -> None:
    def facts(algorithm: str) -> tuple:
        config = paper(tiny_model, recipe=f"paper/sokoban_{algorithm}")
        ragen, actor = check(config), config.actor_rollout_ref.actor
        return (
            config.algorithm.adv_estimator,
            config.algorithm.use_kl_in_reward,
            actor.use_kl_loss,
            actor.clip_ratio_high,
            ragen.kept_groups,
        )

    assert facts("starpo_ppo") == ("gae", True, False, 0.2, 8)
    assert facts("starpo_grpo") == ("grpo", False, True, 0.2, 8)
    assert facts("starpo_s") == ("gae", False, False, 0.28, 2)


def test_paper_sizes(tiny_model: str) -> None:
    config = paper(tiny_model)
    assert (config.data.train_batch_size, config.actor_rollout_ref.rollout.n) == (8, 16)
    assert config.actor_rollout_ref.actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n == 32
    assert config.trainer.total_training_steps == 200
    assert composed("paper/sokoban_starpo_s").actor_rollout_ref.model.path == "Qwen/Qwen2.5-0.5B-Instruct"


# what a paper recipe's result depends on: said in our files, whatever verl's defaults are
STATED = """
    ragen.train.seed ragen.val.seed ragen.rollout.max_turns ragen.rollout.max_actions_per_turn ragen.rollout.max_actions
    ragen.rollout.think ragen.rollout.action_sep ragen.rollout.format_penalty ragen.rollout.stated_length
    ragen.rollout.system_prompt ragen.rollout.explain_invalid ragen.rollout.response_length
    ragen.rollout.seeded_sampling ragen.filter.strategy ragen.filter.value
    data.max_prompt_length data.max_response_length data.shuffle data.train_batch_size
    actor_rollout_ref.model.path actor_rollout_ref.actor.ppo_mini_batch_size actor_rollout_ref.actor.ppo_epochs
    actor_rollout_ref.actor.shuffle actor_rollout_ref.actor.use_kl_loss actor_rollout_ref.actor.clip_ratio
    actor_rollout_ref.actor.clip_ratio_low actor_rollout_ref.actor.clip_ratio_high actor_rollout_ref.actor.clip_ratio_c
    actor_rollout_ref.actor.loss_agg_mode actor_rollout_ref.actor.entropy_coeff
    actor_rollout_ref.actor.policy_loss.loss_mode actor_rollout_ref.actor.optim.lr actor_rollout_ref.actor.optim.betas
    actor_rollout_ref.actor.optim.weight_decay actor_rollout_ref.actor.optim.clip_grad
    actor_rollout_ref.actor.optim.lr_warmup_steps actor_rollout_ref.actor.optim.optimizer
    actor_rollout_ref.rollout.n actor_rollout_ref.rollout.temperature actor_rollout_ref.rollout.top_p
    actor_rollout_ref.rollout.top_k actor_rollout_ref.rollout.dtype actor_rollout_ref.rollout.max_model_len
    actor_rollout_ref.rollout.val_kwargs.n actor_rollout_ref.rollout.val_kwargs.do_sample
    actor_rollout_ref.rollout.val_kwargs.temperature actor_rollout_ref.rollout.val_kwargs.top_p
    algorithm.adv_estimator algorithm.use_kl_in_reward algorithm.rollout_correction.bypass_mode critic.enable
    trainer.total_training_steps trainer.test_freq trainer.val_before_train trainer.critic_warmup
"""
STATED_WITH = {
    "starpo_ppo": "algorithm.gamma algorithm.lam algorithm.kl_penalty algorithm.kl_ctrl.type algorithm.kl_ctrl.kl_coef",
    "starpo_grpo": "algorithm.norm_adv_by_std_in_grpo actor_rollout_ref.actor.kl_loss_coef "
    "actor_rollout_ref.actor.kl_loss_type",
    "starpo_s": "algorithm.gamma algorithm.lam critic.cliprange_value critic.optim.lr critic.ppo_mini_batch_size "
    "critic.ppo_epochs critic.loss_agg_mode",
}


@pytest.mark.parametrize("hardware", GPU)
@pytest.mark.parametrize("algorithm", STATED_WITH)
def test_recipes_state_every_value_they_depend_on(algorithm: str, hardware: str, tmp_path: Path) -> None:
    # composed over a verl without defaults, what is left is what our own files say
    (tmp_path / "ppo_trainer.yaml").write_text("defaults: [{model_engine: dp}]\n")
    (tmp_path / "model_engine").mkdir()
    for engine in ("dp", "megatron"):
        (tmp_path / "model_engine" / f"{engine}.yaml").write_text("{}\n")
    hydra_finds_verl()
    with initialize_config_module("ragen_verl.recipes", version_base=None):
        overrides = [f"hydra.searchpath=[file://{tmp_path}]", f"hardware={hardware}"]
        ours = compose(f"paper/sokoban_{algorithm}", overrides=overrides)
    missing = object()
    for key in f"{STATED} {STATED_WITH[algorithm]}".split():
        *parents, last = key.split(".")
        node = OmegaConf.to_container(ours, resolve=False)
        for parent in parents:
            node = node.get(parent, {})
        assert node.get(last, missing) is not missing, key


def test_megatron_and_lora_are_what_they_say(tiny_model: str) -> None:
    megatron = paper(tiny_model, "hardware=gpu_megatron")
    assert megatron.actor_rollout_ref.actor.strategy == megatron.critic.strategy == "megatron"
    lora = paper(tiny_model, "hardware=gpu_lora")
    assert (lora.actor_rollout_ref.model.lora_rank, lora.critic.model.lora_rank) == (64, 0)
    assert lora.actor_rollout_ref.actor.optim.lr == 1e-5


def test_rows_share_prefixes_on_cpus_alone(tiny_model: str) -> None:
    for hardware in set(GPU) - {"gpu_megatron"}:  # Megatron's engine has no tree
        assert not check(paper(tiny_model, f"hardware={hardware}")).share_prefixes
    assert check(paper(tiny_model, recipe="nano/bandit")).share_prefixes


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("+data.trian_batch_size=4", "did you mean train_batch_size?"),
        ("+trainer.total_steps=4", "did you mean total_epochs?"),
        ("+actor_rollout_ref.actor.clip_high=0.3", "clip_ratio_high"),
        ("ragen.rollout.max_turn=4", "did you mean max_turns?"),
        ("+ragen.rollout.max_turn=4", "did you mean max_turns?"),
        ("ragen.rollout.max_turns=0", "1 or more"),
        ("ragen.rollout.max_turns=five", "ragen.rollout.max_turns is 'five'"),
        ("ragen.train.envs=[{id: Sokobam-v0, groups: 8}]", "Sokoban-v0"),
        ("ragen.train.envs=[{id: Sokoban-v0, groups: 8, kwargs: {boxs: 1}}]", "boxs"),
        ("ragen.train.envs=[{id: Sokoban-v0, groups: 8, kwargs: {dim: [2, 2]}}]", "ragen.train.envs[0]"),
        ("ragen.train.envs=[{id: Sokoban-v0, groups: 4}, {id: Sokoban-v0, groups: 4}]", "give one of them a name"),
        ("ragen.train.seed=200", "do not overlap"),
        ("ragen.filter.value=0.1", "less than one group"),
        ("ragen.filter.strategy=none", "would do nothing"),
        ("trainer.v1.trainer_mode=separate_async", "use mode=async"),
        ("actor_rollout_ref.rollout.n=1", "n is 1"),
        ("actor_rollout_ref.actor.ppo_mini_batch_size=3", "does not divide the 8 groups"),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=0", "ppo_micro_batch_size_per_gpu is 0"),
        ("trainer.n_gpus_per_node=3", "cannot share"),
        ("trainer.total_training_steps=null", "needs a number of steps"),
        ("transfer_queue.enable=false", "transfer_queue.enable is False but a recipe with a ragen block needs True"),
        ("trainer.v1.trainer_mode=sync", "ragen_sync"),
        ("critic.enable=false", "gae needs values"),
        ("actor_rollout_ref.actor.clip_ratio_low=0.3", "other way round"),
        ("actor_rollout_ref.actor.clip_ratio_high=-1", "above 0"),
        ("algorithm.kl_penalty=low-var-kl", "did you mean low_var_kl?"),
        ("algorithm.filter_groups.enable=true", "ragen.filter"),
        ("ragen.rollout.response_length=4000", "data.max_response_length"),
        ("actor_rollout_ref.rollout.max_model_len=100", "max_model_len is 100"),
        ("actor_rollout_ref.model.path=/no/such/model", "no folder on this machine"),
        ("data.train_batch_size=4", "leave the first out"),
        ("actor_rollout_ref.rollout.n=many", "actor_rollout_ref.rollout.n is 'many' but has to be a whole number"),
        ("actor_rollout_ref.rollout.n=null", "actor_rollout_ref.rollout.n is None but has to be a whole number"),
        ("actor_rollout_ref.rollout.temperature=true", "has to be a number"),
        ("trainer.val_before_train=1", "has to be true or false"),
        ("actor_rollout_ref.actor.optim.lr=1e-x", "has to be a number"),
    ],
)
def test_bad_recipe_is_refused_in_one_sentence(override: str, words: str, good: DictConfig) -> None:
    with pytest.raises(RecipeError) as refusal:
        check(changed(good, override))
    message = str(refusal.value)
    assert words in message
    assert "\n" not in message


def test_seeded_sampling_on_the_cpu_needs_prompts_in_one_piece(tiny_model: str) -> None:
    chunked = "actor_rollout_ref.rollout.enable_chunked_prefill=true"
    with pytest.raises(RecipeError, match="enable_chunked_prefill to false"):
        check(paper(tiny_model, chunked, recipe="nano/frozen_lake"))
    check(paper(tiny_model, chunked, "ragen.rollout.seeded_sampling=false", recipe="nano/frozen_lake"))


def test_grpo_with_a_critic_or_single_members_is_refused(tiny_model: str) -> None:
    for override in ("critic.enable=true", "actor_rollout_ref.rollout.n=1"):
        with pytest.raises(RecipeError):
            check(paper(tiny_model, override, recipe="paper/sokoban_starpo_grpo"))


def test_chat_template_that_rewrites_earlier_turns_is_refused(tmp_path: Path, good: DictConfig) -> None:
    save_model_folder(tmp_path)
    save_tokenizer(tmp_path, "{{ messages[-1].content }}<|im_end|>")
    with pytest.raises(RecipeError, match="cannot be used"):
        check(changed(good, f"actor_rollout_ref.model.path={tmp_path}"))


def test_verls_own_main_refuses_before_ray_starts(tiny_model: str, tmp_path: Path) -> None:
    recipe = ["--config-path", "pkg://ragen_verl.recipes", "--config-name", "paper/sokoban_starpo_s"]
    overrides = [f"actor_rollout_ref.model.path={tiny_model}", "ragen.filter.value=0.1"]
    code, said = forked.run_module("verl.trainer.main_ppo", *recipe, *overrides, cwd=tmp_path)
    assert code == 2, said
    assert said.strip().splitlines()[-1].startswith("Recipe refused: ragen.filter.value 0.1 of 8 groups")
    assert "Started a local Ray instance" not in said
    assert not (tmp_path / "runs").exists()


def test_keys_that_verl_reads_without_a_default_pass(good: DictConfig) -> None:
    check(
        changed(
            good,
            "+actor_rollout_ref.rollout.enable_sleep_mode=false",
            "+actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space=1",
            "+ray_kwargs.ray_init.num_gpus=1",
            "+actor_rollout_ref.model.override_config.attn_implementation_x=sdpa",
        )
    )
