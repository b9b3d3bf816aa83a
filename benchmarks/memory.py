"""Memory of a long training's processes: whether it stays flat over 1,000 steps.

    python benchmarks/memory.py [--steps 1000] [--minutes 60] [--every 5] [OVERRIDE ...]

A real training of small steps (`nano/bandit`, 2 groups of 4, no held-out evaluation, no checkpoint), so that many steps
fit into minutes: what a step leaves behind does not depend on its length, except for what grows with its tokens. Every
`--every` seconds it reads /proc/PID/smaps_rollup of each process of the training. `--minutes` ends the training before
its last step; the result says at which step the last sample was taken. Further arguments are Hydra overrides.

- `rss`: pages that a process has in memory, shared ones included. A leak shows here, whoever shares its pages.
- `private`: pages that no other process has. The workers are forked from one process, and a page becomes private when
  one of them writes to it, so that this grows at first without any leak.

The slope is a least-squares line through the samples of the second half of the steps, in MiB per 100 steps.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from ragen_verl.cpu import fork_server
from ragen_verl.names import STEP_SECONDS
from ragen_verl.runs.folder import RunFolder, versions
from ragen_verl.runs.launch import LATE, STARTS, begin, command, stop

RESULT = Path(__file__).parent / "results" / "memory.json"
RECIPE = "nano/bandit"
SMALL = [
    "ragen.train.envs.0.groups=2",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
]
ROLES = {
    "ray::TaskRunner": "trainer (verl's task runner)",
    "ray::AgentLoopWorker": "agent-loop worker",
    "ray::vLLMHttpServer": "engine's server",
    "ray::WorkerDict": "FSDP worker",
    "ray::TransferQueueController": "TransferQueue's controller",
    "ray::SimpleStorageUnit": "TransferQueue's storage",
    "raylet": "raylet",
    "gcs_server": "Ray's GCS",
}
KINDS = {"Rss": "rss", "Pss": "pss", "Private_Dirty": "private"}
POINTS = (0.1, 0.5, 1.0)


def role(process: psutil.Process, driver: int) -> str:
    """What a process is in the training; the small ones have one name."""
    if process.pid == driver:
        return "driver"
    title = process.cmdline()
    name = Path(title[0]).name if title else ""
    found = next((role for start, role in ROLES.items() if name.startswith(start)), "others")
    if found == "engine's server" and (parent := process.parent()) and "vLLMHttpServer" in " ".join(parent.cmdline()):
        return "engine"
    return found


def memory(driver: int) -> dict[str, dict[str, float]]:
    """MiB of this training's processes: role -> kind -> sum over the processes of that role."""
    found: dict[str, dict[str, float]] = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, OSError):
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
            sizes = {name: int(rest.split()[0]) / 1024 for name, rest in (line.split(":") for line in lines)}
            own = found.setdefault(role(process, driver), dict.fromkeys(KINDS.values(), 0.0))
            for name, kind in KINDS.items():
                own[kind] += sizes[name]
    return found


def last_step(folder: RunFolder) -> int:
    """The last step in metrics.jsonl, 0 before the first; read from its end, as it becomes long."""
    with suppress(OSError, IndexError, json.JSONDecodeError), folder.metrics.open("rb") as file:
        file.seek(max(0, folder.metrics.stat().st_size - 65536))
        return json.loads(file.read().splitlines()[-1])["step"]
    return 0


def train(options: argparse.Namespace, folder: RunFolder) -> list[dict[str, Any]]:
    """Train and sample: `step`, `time`, and `memory` by role.

    Raises:
        SystemExit: the run failed; its log is printed.
    """
    fork_server.start()
    samples: list[dict[str, Any]] = []
    given = [f"trainer.total_training_steps={options.steps}", f"ragen.run.dir={folder.path}", *options.overrides]
    log = folder.path.with_suffix(".log")
    for _ in range(STARTS):
        with log.open("w") as file:
            process = begin(command(RECIPE, [*SMALL, *given]), file)
            end = time.monotonic() + 60 * options.minutes
            try:
                while process.poll() is None and time.monotonic() < end:
                    time.sleep(options.every)
                    if (step := last_step(folder)) and process.pid:
                        samples.append({"step": step, "time": time.time(), "memory": memory(process.pid)})
            finally:
                late = time.monotonic() >= end
                stop(process)
        if samples or LATE not in log.read_text():  # Ray, on a busy machine, as `ragen-verl train` does
            break
    if process.poll() and not late:
        raise SystemExit(f"{log.read_text()[-4000:]}\nthe training ended with code {process.poll()}")
    return [one for one in samples if "FSDP worker" in one["memory"]]  # not those of the end


def growth(samples: list[dict[str, Any]], role: str, kind: str) -> dict[str, float]:
    """MiB at the points of the run, and MiB per 100 steps in its second half."""
    steps = np.array([one["step"] for one in samples])
    sizes = np.array([one["memory"].get(role, {}).get(kind, np.nan) for one in samples])
    at = {f"{point:.0%}": float(sizes[np.abs(steps - point * steps[-1]).argmin()]) for point in POINTS}
    late = (steps >= steps[-1] / 2) & np.isfinite(sizes)
    slope = np.polyfit(steps[late], sizes[late], 1)[0] if len(set(steps[late])) > 1 else np.nan
    return {name: round(value, 2) for name, value in {**at, "per_100_steps": 100 * float(slope)}.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60, help="of the training, with its start")
    parser.add_argument("--every", type=float, default=5, help="seconds between two samples")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run")
        samples = train(options, run)
        seconds = [row[STEP_SECONDS] for row in run.rows()]
    if len(samples) < 10:
        raise SystemExit(f"{len(samples)} samples are too few: more steps, or a smaller --every")
    roles = ["driver", *dict.fromkeys(ROLES.values()), "engine", "others"]
    processes = {role: {kind: growth(samples, role, kind) for kind in KINDS.values()} for role in roles}
    table = Table(title=f"{RECIPE}, {samples[-1]['step']} steps: MiB, slope over the second half")
    table.add_column("process")
    for kind in ("rss", "private"):
        for column in (*(f"{point:.0%}" for point in POINTS), "per 100 steps"):
            table.add_column(f"{kind} {column}" if column == "10%" else column, justify="right")
    for name, kinds in processes.items():
        sizes = [kinds[kind] for kind in ("rss", "private")]
        table.add_row(name, *(f"{value:.1f}" for one in sizes for value in one.values()))
    Console(width=140).print(table)
    tenth = max(1, len(seconds) // 10)
    result = {
        "recipe": RECIPE,
        "overrides": [*SMALL, *options.overrides],
        "steps": samples[-1]["step"],
        "samples": len(samples),
        "seconds": round(samples[-1]["time"] - samples[0]["time"]),
        "step_seconds": {"first tenth": np.median(seconds[:tenth]), "last tenth": np.median(seconds[-tenth:])},
        "mib": processes,
        "cores": os.cpu_count(),
        "load_average_at_the_end": os.getloadavg(),
        "versions": versions(),
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
