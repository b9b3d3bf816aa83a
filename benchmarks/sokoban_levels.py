"""Sokoban level generation side by side with gym-sokoban 0.0.6: time, and how the levels differ.

    pip install --no-deps gym-sokoban==0.0.6
    python benchmarks/sokoban_levels.py

gym-sokoban's generator is a module of its own (numpy only), loaded here without the package around it, which needs
the old `gym`. Both run alternately in one thread, one level at a time, timed in CPU time; a level on which
gym-sokoban gives up (it raises) counts with the time it took. Solution lengths are those of a shortest solution.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import platform
import random
import statistics
import time
import types
from pathlib import Path

import numpy as np
from ragen_envs.sokoban import Sokoban
from ragen_envs.sokoban.levels import Level, generate

CASES = (((6, 6), 1), ((8, 8), 2))
DEPTH = 300  # both generators' default
OUT = Path(__file__).parent / "results" / "sokoban_levels.json"


def load_gym_sokoban() -> types.ModuleType:
    """Load gym-sokoban's room generator without importing the package."""
    try:
        root = importlib.metadata.distribution("gym-sokoban").locate_file("gym_sokoban/envs/room_utils.py")
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit("Run `pip install --no-deps gym-sokoban==0.0.6` first.") from None
    spec = importlib.util.spec_from_file_location("gym_sokoban_room_utils", root)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def theirs(rooms: types.ModuleType, dim: tuple[int, int], boxes: int, seed: int) -> Level | None:
    """Generate a level with gym-sokoban, which can be seeded only through the global generators."""
    random.seed(seed)
    np.random.seed(seed)
    try:
        structure, state, _ = rooms.generate_room(dim=dim, num_steps=int(1.7 * sum(dim)), num_boxes=boxes)
    except (RuntimeError, RuntimeWarning):
        return None

    def mask(cells: np.ndarray) -> int:
        return sum(1 << int(cell) for cell in np.flatnonzero(cells))

    # 0 wall, 2 target, 3 and 4 box, 5 player
    boxes_mask = mask((state == 3) | (state == 4))
    player = int(np.flatnonzero(state == 5)[0])
    return Level(*dim, mask(structure == 0), mask(structure == 2), boxes_mask, player)


def ours(dim: tuple[int, int], boxes: int, seed: int) -> Level:
    return generate(np.random.default_rng(seed), *dim, boxes, DEPTH)


def solution_length(level: Level) -> int:
    env = Sokoban(dim=(level.rows, level.columns), boxes=level.boxes.bit_count())
    env.level, env.player, env.boxes = level, level.player, level.boxes
    return len(env.oracle())


def figures(times: list[float], levels: list[Level | None]) -> dict:
    made = [level for level in levels if level is not None]
    lengths = [solution_length(level) for level in made[:200]]
    return {
        "mean_ms": statistics.mean(times),
        "median_ms": statistics.median(times),
        "worst_ms": max(times),
        "gave_up": levels.count(None),
        "distinct": len(set(made)) / len(made),
        "solution_mean": statistics.mean(lengths),
        "solution_median": statistics.median(lengths),
        "solved_in_10": sum(0 < length <= 10 for length in lengths) / len(lengths),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", type=int, default=300)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    rooms = load_gym_sokoban()
    results = []
    for dim, boxes in CASES:
        times: dict[str, list[float]] = {"ragen_verl": [], "gym_sokoban": []}
        levels: dict[str, list[Level | None]] = {"ragen_verl": [], "gym_sokoban": []}
        for seed in range(arguments.levels):
            for name, make in (("ragen_verl", ours), ("gym_sokoban", lambda *case: theirs(rooms, *case))):
                begun = time.process_time()
                level = make(dim, boxes, seed)
                times[name].append((time.process_time() - begun) * 1e3)
                levels[name].append(level)
        row = {name: figures(times[name], levels[name]) for name in times}
        row |= {"dim": dim, "boxes": boxes, "search_depth": DEPTH, "levels": arguments.levels}
        row["times_faster"] = row["gym_sokoban"]["mean_ms"] / row["ragen_verl"]["mean_ms"]
        results.append(row)
        print(f"{dim[0]}x{dim[1]}, {boxes} box(es): {row['times_faster']:.1f} times faster on average")
        for name in times:
            shown = ", ".join(f"{key} {value:.3g}" for key, value in row[name].items())
            print(f"  {name:12} {shown}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    versions = {"python": platform.python_version(), "numpy": np.__version__, "gym_sokoban": "0.0.6"}
    arguments.out.write_text(json.dumps({"versions": versions, "cases": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
