"""What a recipe takes from plugins: files that reach every process, policy losses, and what of it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from recipe_composition import changed, composed
from verl.trainer.ppo import core_algos

from ragen_verl import extensions
from ragen_verl.errors import RecipeError
from ragen_verl.switch import SWITCH
from ragen_verl.training.losses import POLICY_LOSSES, policy_loss
from ragen_verl.validation.losses import check_losses
from ragen_verl.validation.recipe import RecipeCheck

LOSS_MODE = "actor_rollout_ref.actor.policy_loss.loss_mode"


@pytest.fixture(autouse=True)
def _own_registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test registers is gone after it."""
    len(POLICY_LOSSES)
    monkeypatch.setenv(extensions.FILES, "")
    monkeypatch.setattr(POLICY_LOSSES, "_things", dict(POLICY_LOSSES._things))
    before = dict(core_algos.POLICY_LOSS_REGISTRY)
    yield
    core_algos.POLICY_LOSS_REGISTRY.clear()
    core_algos.POLICY_LOSS_REGISTRY.update(before)


def loss(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config, rollout_is_weights=None):
    """A loss in verl's form."""


def test_files_reach_the_workers_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "reaches.py"
    file.write_text("")
    config = composed("nano/frozen_lake", "ragen.plugins=[reaches.py]")
    RecipeCheck().on_run_start(config)
    assert config.ragen.plugins == [str(file)] == config.data.ragen.plugins
    merged = OmegaConf.merge({"env_vars": {"NCCL_DEBUG": "WARN"}}, config.ray_kwargs.ray_init.runtime_env)  # as verl's
    ours = {SWITCH: "1", extensions.FILES: str(file)}
    assert OmegaConf.to_container(merged)["env_vars"] == {"NCCL_DEBUG": "WARN", **ours}


def test_recipe_with_a_file_that_cannot_be_imported_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "fails.py").write_text("import nowhere")
    config = composed("nano/frozen_lake", f"ragen.plugins=[{tmp_path}/fails.py]")
    with pytest.raises(SystemExit):
        RecipeCheck().on_run_start(config)
    assert "Recipe refused: ragen.plugins names" in capsys.readouterr().err


def test_losses_of_plugins_are_known_and_registered_with_verl() -> None:
    policy_loss("mine")(loss)
    core_algos.register_policy_loss("verls")(loss)
    assert core_algos.get_policy_loss_fn("mine") is loss
    config = composed("nano/frozen_lake")
    for name in ("mine", "verls", "gspo"):
        check_losses(changed(config, f"{LOSS_MODE}={name}"))
    with pytest.raises(RecipeError, match="is 'mien', which is no policy loss: did you mean mine"):
        check_losses(changed(config, f"{LOSS_MODE}=mien"))


def test_loss_under_a_name_of_verl_is_refused() -> None:
    vanilla = core_algos.get_policy_loss_fn("vanilla")
    policy_loss("vanilla")(loss)
    assert core_algos.get_policy_loss_fn("vanilla") is vanilla
    with pytest.raises(RecipeError, match="vanilla is a policy loss of verl and of a plugin"):
        check_losses(composed("nano/frozen_lake"))


def test_loss_that_verl_cannot_call_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"cannot be called as verl does it, with old_log_prob, .*: "):
        policy_loss("short")(lambda log_prob, advantages: None)
