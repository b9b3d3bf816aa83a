"""What is refused because of the machine: no GPU, no package, no folder, no checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import DictConfig, OmegaConf
from ray._private.utils import validate_socket_filepath
from saved_checkpoints import cut, save

from ragen_verl.errors import RecipeError
from ragen_verl.validation import machine, recipe
from ragen_verl.validation.machine import _check_temporary


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "DEVICES", ())
    monkeypatch.setattr(machine, "nvidia_smi", list)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "no_cluster"))
    monkeypatch.setattr(machine, "_check_temporary", lambda: None)  # the folder of a test is too long for sockets
    for name in ("RAY_ADDRESS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def config(tmp_path: Path, **trainer: object) -> DictConfig:
    defaults = {"device": "cpu", "logger": ["console"], "resume_mode": "auto", "resume_from_path": None}
    return OmegaConf.create(
        {"ragen": {"run": {"dir": str(tmp_path / "run")}}, "trainer": {**defaults, **trainer}, "ray_kwargs": {}}
    )


def refusal(config: DictConfig) -> str:
    with pytest.raises(RecipeError) as caught:
        machine.check_machine(config)
    return str(caught.value)


def test_a_recipe_for_the_cpu_needs_no_gpu(tmp_path: Path) -> None:
    machine.check_machine(config(tmp_path))


def test_a_recipe_for_a_gpu_is_refused_without_one(tmp_path: Path) -> None:
    assert "no GPU" in refusal(config(tmp_path, device="cuda"))


def test_a_gpu_is_enough_and_a_hidden_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "nvidia_smi", lambda: ["H100"])
    machine.check_machine(config(tmp_path, device="cuda"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "hides every GPU" in refusal(config(tmp_path, device="cuda"))


def test_the_head_of_a_cluster_needs_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    machine.check_machine(config(tmp_path, device="cuda"))


def test_megatron_is_refused_where_it_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "nvidia_smi", lambda: ["H100"])
    recipe = config(tmp_path, device="cuda")
    recipe.actor_rollout_ref = {"actor": {"megatron": {}}}
    said = refusal(recipe)
    assert "megatron.core and megatron.bridge" in said and "container" in said and "\n" not in said
    for name in ("core", "bridge"):
        (tmp_path / "megatron" / name).mkdir(parents=True)
        (tmp_path / "megatron" / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    machine.check_machine(recipe)


def test_an_unknown_logger_is_answered_with_the_nearest(tmp_path: Path) -> None:
    assert "did you mean tensorboard?" in refusal(config(tmp_path, logger=["console", "tensorbord"]))


def test_a_logger_that_is_not_installed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    assert "package wandb is not installed" in refusal(config(tmp_path, logger="wandb"))


@pytest.mark.parametrize(
    ("trainer", "words"),
    [
        ({"resume_mode": "resume_path"}, "names no folder"),
        ({"resume_mode": "resume_path", "resume_from_path": "/none/global_step_4"}, "has to be a folder global_step_N"),
        ({"resume_from_path": "/none/global_step_4"}, "only trainer.resume_mode=resume_path reads it"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_refused(tmp_path: Path, trainer: dict, words: str) -> None:
    assert words in refusal(config(tmp_path, **trainer))


def test_a_checkpoint_that_is_there_is_taken(tmp_path: Path) -> None:
    found = config(tmp_path, resume_mode="resume_path", resume_from_path=str(save(tmp_path, 4)))
    machine.check_machine(found)
    cut(tmp_path / "global_step_4" / "data.pt")
    assert "that checkpoint is damaged (data.pt is cut short)" in refusal(found)


def test_a_run_without_a_whole_checkpoint_is_refused(tmp_path: Path) -> None:
    found = config(tmp_path, default_local_dir=str(tmp_path))
    machine.check_machine(found)
    cut(save(tmp_path, 4) / "data.pt")
    assert "No checkpoint" in refusal(found)
    save(tmp_path, 5)
    machine.check_machine(found)


def test_a_run_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "deeper" / "still"):
        with pytest.raises(RecipeError, match="is a file"):
            machine.check_folder(path)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    for path in (tmp_path / "run", Path("/proc/run")):  # the latter is refused to root as well
        with monkeypatch.context() as patch, pytest.raises(RecipeError, match="nothing can be written"):
            if path.is_relative_to(tmp_path):
                patch.setattr(machine, "TemporaryDirectory", refuse)
            machine.check_folder(path)


def test_relative_folders_start_where_the_command_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = OmegaConf.create(
        {"ragen": {"run": {"dir": "runs/x"}}, "trainer": {"default_local_dir": "${ragen.run.dir}/checkpoints"}}
    )
    OmegaConf.set_struct(found, True)
    machine.make_paths_absolute(found)
    assert found.ragen.run.dir == f"{tmp_path}/runs/x"
    assert found.trainer.default_local_dir == f"{tmp_path}/runs/x/checkpoints"


def test_verls_own_main_gets_absolute_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "check", lambda config: SimpleNamespace(plugins=()))
    monkeypatch.chdir(tmp_path)
    found = config(tmp_path)
    found.ragen.run.dir = "here"
    recipe.RecipeCheck().on_run_start(found)
    assert found.ragen.run.dir == f"{tmp_path}/here"


@pytest.mark.parametrize(
    ("name", "folder", "refused"),
    [
        ("TMPDIR", "/t" * 23, True),
        ("TMPDIR", "/tmp" + "/t" * 17, False),
        ("TMPDIR", "/tmp/größe", True),
        ("RAY_TMPDIR", "/t" * 23, True),
        ("RAY_TMPDIR", "/tmp/größe", True),
        ("RAY_TMPDIR", "/tmp", False),
    ],
)
def test_a_folder_in_which_no_socket_fits_is_refused(name: str, folder: str, refused: bool, monkeypatch) -> None:
    for one in ("TMPDIR", "RAY_TMPDIR"):
        monkeypatch.delenv(one, raising=False)
    monkeypatch.setenv(name, folder)
    monkeypatch.setattr("tempfile.tempdir", None)  # Python leaves a folder that is not there alone, and Ray makes it
    if refused:
        with pytest.raises(RecipeError, match=f"{name} is {folder}"):
            _check_temporary()
    else:
        _check_temporary()


@pytest.mark.parametrize("folder", ["", "tmp", "./a", __file__, f"{__file__}/below", "/proc/tmp"])
@pytest.mark.parametrize("name", ["TMPDIR", "RAY_TMPDIR"])
def test_a_folder_that_ray_cannot_make_is_refused(name: str, folder: str, monkeypatch) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.setenv(name, folder)
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(RecipeError, match=f"^{name} is .*: (set it to|name another)"):
        _check_temporary()


def test_rays_longest_socket_is_as_long_as_the_check_says() -> None:
    longest = f"/{'t' * (machine._SOCKET - machine._OF_RAY - 1)}/ray/session_2026-01-01_00-00-00_000000_4194304/sockets"
    validate_socket_filepath(f"{longest}/plasma_store")
    with pytest.raises(OSError, match="107"):
        validate_socket_filepath(f"{longest}s/plasma_store")
