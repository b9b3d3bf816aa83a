"""Wall time of the same nano training, synchronous and in both asynchronous modes, with slow episodes.

    python benchmarks/async_latency.py [--steps 4] [--groups 4] [--members 4] [--rounds 1]

The environment is `slow_lake.py`: every action takes 0.5 to 5 s, with a tail of slow episodes. The runs make the
same number of updates on groups of the same size, one after the other, `--rounds` times in turn; ratios are taken
within each round. Seconds are those of the steps (`timing_s/step`), the first one included, in which an asynchronous
training plays its groups in advance; starting Ray and the engine is not. What they learn is not compared here. With
mode=disaggregated the engine has a process of its own, which on a CPU shares the cores with the trainer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from slow_lake import LEAST, MOST, SHAPE

from ragen_verl.names import STALENESS_MEAN, STEP_SECONDS
from ragen_verl.runs.folder import RunFolder, versions
from ragen_verl.runs.launch import begin, command

RESULT = Path(__file__).parent / "results" / "async_latency.json"
PLUGIN = Path(__file__).parent / "slow_lake.py"
MODES = ("sync", "async", "disaggregated")


def overrides(options: argparse.Namespace, mode: str, folder: Path) -> list[str]:
    """The nano training of a mode; the same but for the mode."""
    warmup_and_step = 2 * options.groups * options.members
    return [
        f"mode={mode}",
        f"ragen.plugins=[{PLUGIN}]",
        "ragen.train.envs.0.id=SlowLake-v0",
        f"ragen.train.envs.0.groups={options.groups}",
        "ragen.rollout.max_actions=5",
        f"ragen.rollout.env_threads={warmup_and_step}",
        f"actor_rollout_ref.rollout.n={options.members}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={options.groups}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "algorithm.rollout_correction.bypass_mode=false",  # both compute the trainer's log-probabilities
        "ragen.rollout.seeded_sampling=false",
        f"trainer.total_training_steps={options.steps}",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        f"ragen.run.dir={folder}",
    ]


def train(options: argparse.Namespace, mode: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics.

    Raises:
        SystemExit: the run failed; its log is printed.
    """
    log = folder.with_suffix(".log")
    with log.open("w") as file:
        code = begin(command("nano/frozen_lake", overrides(options, mode, folder)), file).wait()
    if code:
        raise SystemExit(f"{log.read_text()[-4000:]}\nthe {mode} training ended with code {code}")
    return RunFolder(folder).rows()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    seconds: dict[str, list[list[float]]] = {mode: [] for mode in MODES}
    staleness: dict[str, list[float]] = {mode: [] for mode in MODES[1:]}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for mode in MODES:
                rows = train(options, mode, Path(folder) / f"{mode}{number}")
                assert len(rows) == options.steps, rows
                seconds[mode].append([row[STEP_SECONDS] for row in rows])
                if mode in staleness:
                    staleness[mode] += [row[STALENESS_MEAN] for row in rows]
                print(f"{mode}: {sum(seconds[mode][-1]):.0f} s for {options.steps} updates", flush=True)
    totals = {mode: [sum(one) for one in rounds] for mode, rounds in seconds.items()}
    ratios = {mode: [a / b for a, b in zip(totals["sync"], totals[mode], strict=True)] for mode in staleness}
    result = {
        **vars(options),
        "latency": {"least": LEAST, "most": MOST, "pareto_shape": SHAPE},
        "step_seconds": seconds,
        "times_as_fast": ratios,
        "staleness_mean": {mode: statistics.mean(ages) for mode, ages in staleness.items()},
        "cores": os.cpu_count(),
        "load_average_at_the_end": os.getloadavg(),
        "versions": versions(),
    }
    for mode, found in ratios.items():
        print(f"mode={mode} is {statistics.median(found):.2f} times as fast as mode=sync, median of {options.rounds}")
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
