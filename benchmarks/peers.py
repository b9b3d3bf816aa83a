"""TRL's GRPOTrainer beside this package, in one run: the same model, states, prompts, rewards, sizes and updates.

    python benchmarks/peers.py [--steps 10]

Both train nano/frozen_lake with one turn an episode. TRL gets a virtual environment of its own, which sees the packages
of this one (pip downloads trl alone); it generates with transformers, as its default is. A step is a rollout and its
two updates. Seconds are those of a clock, so nothing else may run beside it; read the ratios.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from omegaconf import OmegaConf
from ragen_lab.evaluate.plan import Episode, episodes
from ragen_lab.evaluate.policies import Player, Policy, Scripted
from ragen_lab.evaluate.runner import evaluate
from rich.console import Console
from rich.table import Table

from ragen_verl.config import RagenConfig
from ragen_verl.machine import version
from ragen_verl.names import HELD_OUT_SUCCESS, STEP_SECONDS
from ragen_verl.rollout.protocol import Protocol
from ragen_verl.runs.folder import RunFolder, versions
from ragen_verl.runs.trajectories import messages
from ragen_verl.validation.composition import compose

RESULT = Path(__file__).parent / "results" / "peers.json"
RECIPE, TURNS = "nano/frozen_lake", "ragen.rollout.max_turns=1"
BATCH = 64  # prompts that transformers answers at a time in held-out episodes


def ours(folder: Path, steps: int) -> dict[str, Any]:
    """Train with this package."""
    keys = [TURNS, f"trainer.total_training_steps={steps}", f"trainer.test_freq={steps}", "trainer.save_freq=-1"]
    begun = time.time()
    command = [sys.executable, "-m", "ragen_verl", "train", RECIPE, *keys, f"ragen.run.dir={folder}"]
    subprocess.run(command, check=True)
    rows = RunFolder(folder).rows()
    trained = [row for row in rows if row["step"]]
    held_out = [row[HELD_OUT_SUCCESS] for row in rows if HELD_OUT_SUCCESS in row]
    return {
        "first_step_after": trained[0]["time"] - begun,
        "seconds_a_step": median([row[STEP_SECONDS] for row in trained[1:]]),
        "held_out": [held_out[0], held_out[-1]],
    }


def peer(folder: Path, steps: int) -> dict[str, Any]:
    """Train with TRL, in a virtual environment below `folder`."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "trl"], check=True)
    home = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (Path(home) / "host.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    begun = time.time()
    out = folder / "trl.json"
    subprocess.run([python, __file__, "--steps", str(steps), "--peer", out], check=True, cwd=folder)
    found = json.loads(out.read_text())
    return {**found, "first_step_after": found["first_step_after"] - begun}


class Given(Policy):
    """Answers that are known: (seed, rollout index) -> text."""

    name = "given"

    def __init__(self, answers: dict[tuple[int, int], str]) -> None:
        self.answers = answers

    def player(self, episode: Episode, protocol: Protocol) -> Player:
        """Gives the episode's answer in its only turn."""
        one = Player()
        one.respond = lambda *_: _said(self.answers[episode.seed, episode.rollout_index])  # type: ignore[method-assign]
        return one


async def _said(text: str) -> Any:
    return Player.say(text)


def recipe() -> Any:
    """What both train, with all its keys."""
    return OmegaConf.to_container(compose(RECIPE, [TURNS, "ragen.run.dir=x"]), resolve=True)


class Lake:
    """The recipe's states as prompts, and what answers to them earn."""

    def __init__(self, first: int, groups: int) -> None:
        config = recipe()
        config["ragen"]["val"] = {**config["ragen"]["val"], "seed": first}
        config["ragen"]["val"]["envs"][0]["groups"] = groups
        self.ragen = RagenConfig.from_omegaconf(OmegaConf.create(config))
        self.plan = episodes(self.ragen)

    def prompts(self, tokenizer: Any) -> list[str]:
        """The text before the first answer in the episode of each state, in the order of the seeds."""
        chat = self.ragen.rollout.chat_protocol().chat(tokenizer)
        shown = [messages(one, 1) for one in self.play(Scripted("random"), self.plan)]
        return [tokenizer.decode(chat.initial(one[0]["content"], one[1]["content"])) for one in shown]

    def play(self, policy: Policy, plan: Sequence[Episode]) -> list[dict[str, Any]]:
        """The records of the episodes."""
        with tempfile.TemporaryDirectory() as scratch:
            return evaluate(self.ragen, policy, plan, Path(scratch), lengths=(0, 100_000), settings={})

    def records(self, seeds: Sequence[int], answers: Sequence[str]) -> list[dict[str, Any]]:
        """The records of the episodes in which these answers were given; several to a state are its samples."""
        states, seen, plan, given = {one.seed: one for one in self.plan}, Counter[int](), [], {}
        for seed, text in zip(seeds, answers, strict=True):
            one = states[seed]
            plan.append(Episode(one.split, one.env, one.env_id, one.kwargs, seed, seen[seed]))
            given[seed, seen[seed]] = text
            seen[seed] += 1
        return self.play(Given(given), plan)


def trl(steps: int) -> dict[str, Any]:
    """Train with TRL in this process; the recipe's numbers, in TRL's names."""
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    config = recipe()
    model, rollout = config["actor_rollout_ref"], config["actor_rollout_ref"]["rollout"]
    actor, groups, n = model["actor"], config["ragen"]["train"]["envs"][0]["groups"], rollout["n"]
    updates = groups // actor["ppo_mini_batch_size"]
    train = Lake(config["ragen"]["train"]["seed"], groups * steps)
    held_out = Lake(config["ragen"]["val"]["seed"], config["ragen"]["val"]["envs"][0]["groups"])
    path, ends = model["model"]["path"], list[float]()
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    length = config["ragen"]["rollout"]["response_length"]

    class Times(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.time())

    def reward(completions: list[str], seed: list[int], **_: Any) -> list[float]:
        return [one["return"] for one in train.records(seed, completions)]

    trainer = GRPOTrainer(
        model=path,
        reward_funcs=reward,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict(
            {"prompt": train.prompts(tokenizer), "seed": [one.seed for one in train.plan]},
        ),
        callbacks=[Times()],
        args=GRPOConfig(
            output_dir="trl",
            use_cpu=not torch.cuda.is_available(),
            bf16=False,
            max_steps=updates * steps,
            per_device_train_batch_size=groups * n // updates,
            steps_per_generation=updates,
            num_generations=n,
            max_completion_length=length,
            temperature=rollout["temperature"],
            learning_rate=actor["optim"]["lr"],
            warmup_steps=actor["optim"]["lr_warmup_steps"],
            lr_scheduler_type="constant_with_warmup",
            weight_decay=actor["optim"]["weight_decay"],
            max_grad_norm=actor["grad_clip"],
            epsilon=actor["clip_ratio_low"],
            epsilon_high=actor["clip_ratio_high"],
            beta=0.0,
            loss_type="bnpo",  # the mean over tokens
            shuffle_dataset=False,
            gradient_checkpointing=False,
            save_strategy="no",
            report_to=[],
            model_init_kwargs={"dtype": "float32"},
        ),
    )

    def success() -> float:
        prompts, answers = held_out.prompts(tokenizer), list[str]()
        how = rollout["val_kwargs"]
        for start in range(0, len(prompts), BATCH):
            rows = tokenizer(
                prompts[start : start + BATCH], return_tensors="pt", padding=True, add_special_tokens=False
            )
            rows = rows.to(trainer.model.device)
            out = trainer.model.generate(
                **rows,
                max_new_tokens=length,
                do_sample=True,
                temperature=how["temperature"],
                top_p=how["top_p"],
                top_k=0,
            )
            answers += tokenizer.batch_decode(out[:, rows["input_ids"].shape[1] :], skip_special_tokens=True)
        records = held_out.records([one.seed for one in held_out.plan], answers)
        return sum(one["success"] for one in records) / len(records)

    before = success()
    trainer.train()
    first, *rest = ends[updates - 1 :: updates]
    return {
        "first_step_after": first,
        "seconds_a_step": median(after - start for start, after in zip([first, *rest], rest, strict=False)),
        "held_out": [before, success()],
        "trl": version("trl"),
    }


def main() -> None:
    """Run both, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="2 or more; the first is not counted in the median")
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peer:
        given.peer.write_text(json.dumps(trl(given.steps)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        found = {"ragen_verl": ours(Path(scratch) / "run", given.steps), "TRL": peer(Path(scratch), given.steps)}
    table = Table("", *found, "ratio TRL / ragen_verl", title=f"{RECIPE} with one turn, {given.steps} steps")
    ratios = {}
    for name, words in (("first_step_after", "s to the end of the first step"), ("seconds_a_step", "s a step")):
        numbers = [one[name] for one in found.values()]
        ratios[name] = numbers[1] / numbers[0]
        table.add_row(words, *(f"{one:.1f}" for one in numbers), f"{ratios[name]:.2f}")
    table.add_row(
        "held-out success", *(f"{one['held_out'][0]:.3f} -> {one['held_out'][1]:.3f}" for one in found.values())
    )
    Console().print(table)
    about = {"recipe": RECIPE, "overrides": [TURNS], "steps": given.steps, "versions": versions()}
    RESULT.write_text(json.dumps({**about, "ratios": ratios, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
