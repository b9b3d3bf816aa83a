"""Export a checkpoint of a run as a Hugging Face folder, in the dtype of its training."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from pprint import pformat
from typing import Any

from omegaconf import OmegaConf
from ragen_lab.convert.template import as_trained
from ragen_lab.markdown import table
from scipy.stats import binomtest

from ragen_verl.errors import RecipeError
from ragen_verl.names import EPISODES, HELD_OUT, HELD_OUT_SUCCESS, RETURN
from ragen_verl.runs.checkpoints import damage_of_model
from ragen_verl.runs.folder import RunFolder, checkpoints_in, mapping
from ragen_verl.runs.trajectories import messages, read
from ragen_verl.switch import SWITCH

__all__ = ["LAST", "card", "checkpoints", "export", "find", "merged", "step_of"]

_BEST, LAST = "best", "last"


def checkpoints(folder: RunFolder) -> dict[str, Path]:
    """The checkpoints that a run has: each by its step, and those that were kept (`best`, `before_warning`).

    `last` is the newest whose weights are complete.
    """
    saved = checkpoints_in(folder.path / "checkpoints")
    found = {str(step): path for step, path in saved.items() if (path / "actor").is_dir()}
    whole = (path for path in reversed(found.values()) if not damage_of_model(path / "actor"))
    if last := next(whole, None):
        found[LAST] = last
    for path in sorted(folder.kept.glob("*")):
        if (path / "actor").is_dir():
            found[path.name] = path
    return found


def find(folder: RunFolder, which: str) -> Path:
    """The checkpoint of this name.

    Raises:
        RecipeError: the run has no such checkpoint, or its weights are damaged.
    """
    known = checkpoints(folder)
    if which not in known:
        has = ", ".join(known) or "none: set trainer.save_freq"
        raise RecipeError(f"{folder.path} has no checkpoint {which!r}; it has {has}.")
    if found := damage_of_model(known[which] / "actor"):
        raise RecipeError(f"{known[which]} is damaged ({found}): take another of {', '.join(known)}.")
    return known[which]


def export(folder: RunFolder, which: str, out: Path) -> Path:
    """Merge the shards of a checkpoint's actor with verl's merger, and write a template that prompts as in training.

    A model card is written as well.

    Args:
        folder: the run's.
        which: `best`, `last`, `before_warning` or a step.
        out: the Hugging Face folder to write.

    Raises:
        RecipeError: the run has no such checkpoint, or the merger failed; with the last line that it wrote.
    """
    merged(find(folder, which) / "actor", out)
    if config := mapping(folder.path / "config.yaml"):
        as_trained(config, out)
    (out / "README.md").write_text(card(folder, which))
    return out


def merged(shards: Path, out: Path) -> Path:
    """Merge the shards of a model with verl's own merger into a Hugging Face folder.

    Raises:
        RecipeError: the merger failed; with the last line that it wrote.
    """
    command = [sys.executable, "-m", "ragen_lab.convert.merge", str(shards), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, SWITCH: "1"})
    if done.returncode or not list(out.glob("*.safetensors")):
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise RecipeError(f"The checkpoint could not be merged: {lines[-1] if lines else 'verl said nothing'}")
    return out


def card(folder: RunFolder, which: str) -> str:
    """The model card: the model, its training, its results, and how to load, play and train it again.

    Args:
        folder: the run's.
        which: as in `find`.

    Raises:
        RecipeError: the run has no such checkpoint.
    """
    step = step_of(find(folder, which))
    config = mapping(folder.path / "config.yaml") or {}
    ragen = config.get("ragen") or {}
    base = str(((config.get("actor_rollout_ref") or {}).get("model") or {}).get("path") or "a model")
    hub = re.fullmatch(r"[\w.-]+/[\w.-]+", base) and not Path(base).exists()
    recipe = folder.recipe or folder.path.name
    lines = ["---", "library_name: transformers", "pipeline_tag: text-generation"]
    lines += [f"base_model: {base}"] if hub else []
    lines += ["tags: [ragen-verl, reinforcement-learning, multi-turn-agent]", "---", f"# {recipe}, step {step}", ""]
    named = base if hub else Path(base).name
    lines += [f"{named}, trained by reinforcement learning to act over many turns, with ragen_verl on verl.", ""]
    for split, title in (("train", "Trained on"), ("val", "Held out"), ("generalisation", "Generalisation")):
        block = ragen.get(split) or {}
        envs = [f"{one['id']} {json.dumps(one.get('kwargs') or {})}" for one in block.get("envs") or ()]
        lines += [f"- {title}: {'; '.join(envs)}, seeds from {block.get('seed')}"] if envs else []
    if rows := list(_held_out(folder, config, step)):
        lines += ["", *table(["held out", "step", "success", "95 %", "return"], rows)]
    lines += ["", "It was trained for these environments and the prompts of its recipe; elsewhere it is untried.", ""]
    thinks = (ragen.get("rollout") or {}).get("think", True)
    begun = "; as in training, the template also writes how an answer begins" if thinks else ""
    lines += [f"Ask it, in this folder{begun}:", ""]
    lines += [f"    {line}".rstrip() for line in _call(folder, config).splitlines()]
    lines += [
        "",
        "`vllm serve .` answers the same messages. Play its held-out episodes in this folder, and train it again:",
    ]
    given = []
    if (overrides := folder.path / "hydra" / "overrides.yaml").is_file():
        given = [one for one in OmegaConf.load(overrides) if "ragen.run.dir" not in one]
    lines += ["", f"    ragen-verl eval {shlex.join([recipe, *given])} --policy hf:."]
    lines += [f"    ragen-verl train {shlex.join([recipe, *given])}"] * overrides.is_file()
    versions = mapping(folder.path / "versions.json") or {}
    lines += ["", *table(["package", "version"], [[name, str(number)] for name, number in versions.items()])]
    return "\n".join(lines) + "\n"


_CALL = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(".")
tokenizer = AutoTokenizer.from_pretrained(".")
asked = {{"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}}
messages = {messages}{tools}
prompt = tokenizer.apply_chat_template(messages, **asked)
answer = model.generate(**prompt, max_new_tokens={length}, {sampling})
print(tokenizer.decode(answer[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True))
"""


def _call(folder: RunFolder, config: Mapping[str, Any]) -> str:
    """Python that asks the model for its first answer in an episode of the run, sampled as in held-out episodes."""
    ragen, rollout = config.get("ragen") or {}, (config.get("actor_rollout_ref") or {}).get("rollout") or {}
    first = "the first prompt of an episode, as ragen-verl env show ENV --prompt prints it"
    seen, tools = [{"role": "user", "content": first}], None
    with suppress(RecipeError):  # a run without trajectories
        for one in read(folder.path, where=lambda one: bool(one["turns"] and one["preamble"])):
            seen, tools = messages(one, 1), one["preamble"].get("tools")
            break
    how = rollout.get("val_kwargs") or {}
    sampled = f"do_sample=True, temperature={how.get('temperature') or 1.0}, top_p={how.get('top_p') or 1.0}, top_k=0"
    return _CALL.format(
        messages=json.dumps(seen, indent=4, ensure_ascii=False),
        tools=f'\nasked["tools"] = {pformat(tools, width=110, sort_dicts=False)}' if tools else "",
        length=(ragen.get("rollout") or {}).get("response_length") or 400,
        sampling=sampled if how.get("do_sample") else "do_sample=False",
    )


def step_of(checkpoint: Path) -> int:
    """The training step of a checkpoint's folder.

    Raises:
        RecipeError: neither its name nor a step.txt gives the step.
    """
    said = checkpoint / "step.txt"
    text = said.read_text().strip() if said.is_file() else checkpoint.name.rpartition("_")[2]
    if not text.isdecimal():
        raise RecipeError(f"{checkpoint} does not say which step it is of: it has no step.txt.")
    return int(text)


def _held_out(folder: RunFolder, config: Mapping[str, Any], step: int) -> Iterator[list[str]]:
    """The evaluations before training, at the checkpoint's step, and at the run's best, where they were made."""
    rows = {row["step"]: row for row in folder.rows() if HELD_OUT_SUCCESS in row}
    if not rows:
        return
    best = max(rows, key=lambda one: rows[one][HELD_OUT_SUCCESS])
    rollout = (config.get("actor_rollout_ref") or {}).get("rollout") or {}
    single = ((rollout.get("val_kwargs") or {}).get("n") or 1) == 1  # several episodes of a state are not independent
    for title, at in (("before training", 0), ("this model", step), ("best of the run", best)):
        if at in rows:
            success, episodes = rows[at][HELD_OUT_SUCCESS], rows[at].get(f"{HELD_OUT}/{EPISODES}")
            within = "-"
            if single and episodes:
                ends = binomtest(round(success * episodes), round(episodes)).proportion_ci(method="wilson")
                within = f"{ends.low:.3f} to {ends.high:.3f}"
            ret = rows[at].get(f"{HELD_OUT}/{RETURN}")
            yield [title, str(at), f"{success:.3f}", within, "-" if ret is None else f"{ret:.3f}"]
