"""The command around a run: signals, phases, plain lines, the cause of a failure; a stand-in takes verl's place."""

from __future__ import annotations

import io
import json
import signal
import sys
from pathlib import Path

import launched
import pytest
from launched import WAIT, alive, stand_in, start, until
from rich.console import Console

from ragen_verl.runs import launch
from ragen_verl.runs.folder import RunFolder, explain_weightless


def run(folder: Path, then: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.setattr(launch, "version", lambda name: None)
    monkeypatch.setattr(launch, "command", lambda *_: [sys.executable, "-c", stand_in(folder, then)])
    out = io.StringIO()
    code = launch.train("a/recipe", [], RunFolder(folder), Console(file=out, width=40))
    return code, out.getvalue()


def test_without_a_terminal_every_step_is_a_plain_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out = run(tmp_path / "run", "sys.exit(3)", monkeypatch)
    assert code == 3
    lines = out.splitlines()
    assert "step 0/2: held-out success 20.0%" in lines
    assert any(line.startswith("step 1/2: training success 50.0%, held-out success 20.0%") for line in lines)
    assert not any("━" in line for line in lines)


def test_a_cause_with_markup_in_it_is_printed_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out = run(tmp_path / "run", "raise ValueError('no [/tmp] here')", monkeypatch)
    assert code == 1 and "The run failed (exit code 1): ValueError: no [/tmp] here" in out.splitlines()


def test_an_old_runs_error_is_not_taken_for_this_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.error.write_text("KeyError: 'old'\n")
    _, out = run(folder.path, "raise ValueError('new')", monkeypatch)
    assert "ValueError: new" in out and "KeyError" not in out


@pytest.mark.parametrize("said_by", [f"{launch.LATE}. This could ...", "[Errno 98] Address already in use"])
@pytest.mark.parametrize(("late", "started", "code"), [(2, 3, 0), (5, 3, 1)])
def test_a_start_that_had_bad_luck_is_repeated(
    late: int, started: int, code: int, said_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = tmp_path / "count"
    ray = f"""
from pathlib import Path
count = Path({str(count)!r})
count.write_text(count.read_text() + "x" if count.exists() else "x")
if len(count.read_text()) <= {late}:
    raise OSError("{said_by}")
"""
    monkeypatch.setattr(launched, "STAND_IN", ray.replace("{", "{{").replace("}", "}}") + launched.STAND_IN)
    done = "(folder / 'summary.json').write_text(json.dumps(dict(steps=1, seconds=1, before={}, after={}, best={})))"
    monkeypatch.setattr(launch, "result_table", lambda folder: "a table")
    found, said = run(tmp_path / "run", done, monkeypatch)
    assert (found, len(count.read_text())) == (code, started)
    assert said.count("started again") == min(late, 2) and (said_by in said) == bool(code)


def test_another_failure_starts_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.txt").write_text(f"of an earlier run: {launch.LATE}\n")
    code, said = run(tmp_path, "raise ValueError('mine')", monkeypatch)
    assert code == 1 and "ValueError: mine" in said and "started again" not in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_run_and_what_it_started(number: signal.Signals, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    process = start(folder, WAIT)
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"Stopped. Go on with: ragen-verl resume {folder.path}" in out.splitlines()
    assert "after step 1" in folder.error.read_text() and folder.curve.exists()
    assert not alive(int(child))


def test_a_killed_driver_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tmp_path / "group"
    then = (
        f"import os, subprocess\nPath({str(group)!r}).write_text(str(os.getpid()))\n"
        "subprocess.Popen(['sleep', '600'])\nos.kill(os.getpid(), 9)"
    )
    code, out = run(tmp_path / "run", then, monkeypatch)
    assert code == -9 and "killed by SIGKILL" in out
    until(lambda: not alive(int(group.read_text())), 10)


def test_sigusr1_asks_for_a_checkpoint_and_the_run_goes_on(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    then = "print('waiting', flush=True)\nwhile not (folder / 'checkpoint_wanted').exists(): time.sleep(0.05)"
    process = start(folder, then)
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=60)
    assert folder.wanted.exists()


def test_the_command_to_go_on_is_spelled_as_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "argv", [".venv/bin/ragen-verl", "train", "x"])
    assert launch.typed("resume", "runs/a b") == ".venv/bin/ragen-verl resume 'runs/a b'"


def test_a_result_has_before_best_and_after(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step, success in ((0, 0.2), (10, 0.7), (20, 0.6)):
        folder.log(step, {"val-env/success": success, "val-env/return": success, "val-env/valid": 1.0})
    summary = folder.finish(recipe="nano/bandit", seed=1)
    assert (summary["best"]["step"], summary["best"]["success"]) == (10, 0.7)
    out = io.StringIO()
    Console(file=out, width=120).print(launch.result_table(folder))
    assert "best (step 10)" in out.getvalue() and "nano/bandit, seed 1: 20 steps" in out.getvalue()


def test_a_mixtures_result_has_a_row_per_environment(tmp_path: Path) -> None:
    def table(*names: str) -> list[list[str]]:
        folder = RunFolder(tmp_path / "-".join(names))
        folder.path.mkdir()
        for step, success in ((0, 0.25), (10, 0.75), (20, 0.5)):
            metrics = {"val-env/success": success, "val-env/return": 0.0, "val-env/valid": 1.0}
            for shift, name in enumerate(names):
                metrics |= {f"val-env/{name}/success": success - shift / 8, f"val-env/{name}/groups": 4.0}
            folder.log(step, metrics | {"val-env/unseen/success": success})
        folder.finish(recipe="r", seed=1)
        console = Console(file=io.StringIO(), width=120, record=True)
        console.print(launch.result_table(folder))
        return [line.split() for line in console.export_text().splitlines() if "success in" in line]

    rows = table("GymLake", "Sokoban")
    assert [row[row.index("in") + 1] for row in rows] == ["GymLake", "Sokoban"]
    assert [[cell for cell in row if cell.startswith("0.")] for row in rows] == [
        ["0.250", "0.750", "0.500"],
        ["0.125", "0.625", "0.375"],
    ]
    assert table("GymLake") == []


def test_a_summary_of_before_there_was_a_best_can_be_shown(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.log(0, {"val-env/success": 0.2, "val-env/return": 0.2, "val-env/valid": 1.0})
    summary = folder.finish(recipe="r", seed=1)
    del summary["best"]
    folder.summary.write_text(json.dumps(summary))
    Console(file=io.StringIO()).print(launch.result_table(folder))


def test_an_evaluation_shows_the_splits_that_were_played(tmp_path: Path) -> None:
    folder, metrics = RunFolder(tmp_path), {"success": 0.25, "return": 0.5, "valid": 1.0, "episodes": 8}
    folder.evaluation.write_text(json.dumps({"step": 3, **{f"val-env/{name}": one for name, one in metrics.items()}}))
    out = io.StringIO()
    Console(file=out, width=120).print(launch.evaluation_table(folder))
    assert all(words in out.getvalue() for words in ("policy of step 3", "held out", "0.250", "0.500", " 8 "))
    assert "other environments" not in out.getvalue()


def test_a_folder_without_weights_says_so(tmp_path: Path) -> None:
    for name, weights in (("actor", []), ("critic", ["model.safetensors"])):
        (tmp_path / name / "huggingface").mkdir(parents=True)
        for file in weights:
            (tmp_path / name / "huggingface" / file).touch()
    explain_weightless(tmp_path)
    assert "model_merger" in (tmp_path / "actor" / "huggingface" / "README.md").read_text()
    assert not (tmp_path / "critic" / "huggingface" / "README.md").exists()


def test_failed_episodes_are_on_the_screen_and_in_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    then = (
        "row = {'step': 2, 'train/success': 0.5, 'train/excluded_ratio': 0.125, 'train/excluded': 16.0}\n"
        "with (folder / 'metrics.jsonl').open('a') as file:\n"
        "    file.write(json.dumps({**row, 'time': time.time()}) + '\\n')\n"
        "from ragen_verl.runs.folder import RunFolder\nRunFolder(folder).finish(recipe='a/recipe', seed=1)"
    )
    code, out = run(tmp_path / "run", then, monkeypatch)
    assert code == 0 and "12% of the episodes failed" in out
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(launch.result_table(RunFolder(tmp_path / "run")))
    (line,) = [one for one in console.export_text().splitlines() if "failed episodes" in one]
    assert line.split()[-2] == "16"
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["failed_episodes"] == 16
