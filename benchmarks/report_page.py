"""How long the report of a run with 2,000 trajectories takes to be written and to open in Chromium.

    python benchmarks/report_page.py [--trajectories 2000] [--rounds 5]

The run is written by the package's own writers: 25 training steps of 8 groups of 8 and 5 evaluations of 80 states, 5
turns each of a state of 400 characters and a response of 120 tokens, once without tokens in the records and once with
them. Opening is the browser's own navigation timing, from the request of the file to the end of the `load` event, by
when the viewer shows its first trajectory; a search through all texts is timed from the last key to the new list. Needs
Playwright and a Chromium (`make test-pages` installs both); without them it only says so.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from omegaconf import OmegaConf
from ragen_lab.report import read_run, render

from ragen_verl.rollout.metrics import summarize
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn
from ragen_verl.runs.folder import RunFolder, versions

RESULT = Path(__file__).parent / "results" / "report_page.json"
STEPS, GROUPS, MEMBERS, STATES, TURNS, TOKENS = 25, 8, 8, 80, 5, 120
WORDS = ["the", "agent", "has", "to", "push", "a", "box", "up", "left", "wall", "goal", "wait", "move", "see", "plan"]


def trajectory(draw: random.Random, seed: int, index: int) -> Trajectory:
    turns = []
    for _ in range(TURNS):
        words = [draw.choice(WORDS) for _ in range(TOKENS)]
        state = "\n".join("".join(draw.choice("_#OXPS") for _ in range(19)) for _ in range(20))
        turns.append(
            Turn(
                state=state,
                prompt_ids=[1] * 150,
                response_ids=list(range(TOKENS)),
                log_probs=[-draw.expovariate(2) for _ in words],
                text=" ".join(words),
                think=" ".join(words),
                user=f"State:\n{state}",
                format_ok=True,
                actions=["Up", "Left"],
                num_valid=2,
                executed=["Up", "Left"],
                valid=True,
                effective=True,
                observation=state,
            )
        )
    solved = draw.random() < 0.5
    turns[-1].reward = float(solved)
    reason = StopReason.SOLVED if solved else StopReason.TURN_BUDGET
    return Trajectory("Sokoban", seed, index, turns=turns, stop_reason=reason, system="You are.", task_prompt="Push.")


def write_run(path: Path, tokens: bool) -> RunFolder:
    draw = random.Random(0)
    folder = RunFolder(path)
    folder.begin(OmegaConf.create({"trainer": {"total_training_steps": STEPS}}), step=0)
    for step in range(STEPS + 1):
        line = {"timing_s/step": 60.0, "timing_s/gen": 40.0, "actor/entropy": 1.0, "actor/grad_norm": draw.random()}
        if step % 6 == 0:
            held_out = [record(trajectory(draw, seed, 0), tokens) for seed in range(STATES)]
            folder.write_trajectories("val", step, held_out)
            line |= summarize(held_out, "val-env")
        if step:
            seeds = range(1000 + GROUPS * step, 1000 + GROUPS * (step + 1))
            played = [record(trajectory(draw, seed, index), tokens) for seed in seeds for index in range(MEMBERS)]
            folder.write_trajectories("train", step, played)
            line |= summarize(played, "train")
        folder.log(step, line)
    folder.finish(recipe="benchmark", seed=0)
    return folder


def record(one: Trajectory, tokens: bool) -> dict:
    ends = [[len(" ".join(turn.text.split(" ")[:i])) + (i > 0) for i in range(TOKENS)] for turn in one.turns]
    found = one.record((lambda ids: ends[0]) if tokens else None) | {"kept": True}
    for turn, starts in zip(found["turns"], ends, strict=True):
        if tokens:
            turn["tokens"] |= {"offsets": starts, "advantages": [random.gauss(0, 1) for _ in starts]}
    return found


def measure(browser: object, page: Path, rounds: int) -> dict[str, float]:
    opening, searching = [], []
    for _ in range(rounds):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        tab = context.new_page()
        tab.goto(page.as_uri())
        assert tab.locator(".cell").count() and tab.locator(".turn").count()
        opening.append(tab.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000)
        tab.locator("#step").select_option("")
        tab.locator("#split").select_option("")
        found = tab.locator("#found").inner_text()
        start = time.perf_counter()
        tab.locator("#search").fill("wait move see")
        while tab.locator("#found").inner_text() == found:
            time.sleep(0.01)
        searching.append(time.perf_counter() - start)
        context.close()
    return {"open_s": round(statistics.median(opening), 3), "search_s": round(statistics.median(searching), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=2000, help="that the page may hold")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("Playwright is missing: make test-pages installs it and Chromium.")
        return
    found: dict = {"versions": versions(), "trajectories": options.trajectories, "rounds": options.rounds}
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        found["chromium"] = browser.version
        for tokens in (False, True):
            folder = write_run(Path(scratch) / str(tokens), tokens)
            start = time.perf_counter()
            page = render([read_run(folder.path)], options.trajectories)
            written = time.perf_counter() - start
            file = Path(scratch) / f"{tokens}.html"
            file.write_bytes(page)
            name = "with tokens" if tokens else "without tokens"
            found[name] = {
                "megabytes": round(len(page) / 1e6, 2),
                "write_s": round(written, 2),
                **measure(browser, file, options.rounds),
            }
            print(name, found[name])
        browser.close()
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
