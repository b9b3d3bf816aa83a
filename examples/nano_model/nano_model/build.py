"""Makes the nano model from nothing: tokenizer, scripted play, training, weights. `python -m nano_model` calls it.

The weights in `ragen_verl/cpu/nano_model` were made by `build(seed=0)`. The same recipe, code, seed, thread count and
library versions give the same file; the folder in the cache is named after the first three.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from tokenizers import Tokenizer
from transformers import Qwen2Config

from nano_model import model, phrases, tokenizer
from nano_model import train as training
from nano_model.demonstrations import Sample, generate, words
from nano_model.players import Mix
from nano_model.worlds import WORLDS, World
from ragen_verl.cpu.nano_model import cache
from ragen_verl.errors import MissingExtra

_CHUNK = 2_500  # episodes per job; fixed, because each chunk has its own seed
ABLE = Mix({"careful": 0.62, "careless": 0.23, "wild": 0.05, "stubborn": 0.05, "timid": 0.05}, loyalty=0.5)
MIXED = Mix({"careful": 0.17, "careless": 0.2, "wild": 0.21, "stubborn": 0.21, "timid": 0.21})


@dataclass(frozen=True)
class Stage:
    """A part of the curriculum: who plays, how many episodes, and the share of them cut after one turn."""

    mix: Mix
    episodes: int
    single_turn: float


@dataclass(frozen=True)
class Recipe:
    """What the model is trained on and how.

    The first stages are played mostly by the able players and teach the map, first in single turns, where it always
    stands in the same place; the last one sets how often the model plays like whom. Training on the final mixture alone
    spends two thirds of its time on players who do not look.

    What was tried on the way (success on deterministic FrozenLake when made to answer carefully, temperature 0.5):
    AdamW at 2e-3 on 6.4 M tokens of another curriculum reached 62 %, Muon on as many of this one 78 %. Reading drills
    (14 random cells in an answer) with AdamW and smaller batches were dropped: after 5 M tokens half of the positions
    were still misread. Reading the map is learned late and then quickly, so a short run says little.
    """

    stages: tuple[Stage, ...] = (Stage(ABLE, 20_000, 1.0), Stage(ABLE, 45_000, 0.5), Stage(MIXED, 15_000, 0.5))
    train: training.TrainConfig = field(default_factory=training.TrainConfig)
    threads: ClassVar[int] = 2
    worlds: ClassVar[Sequence[World]] = WORLDS
    no_think: ClassVar[float] = 0.06
    files: ClassVar[tuple[str, ...]] = (
        "demonstrations", "episodes", "model", "phrases", "players", "tokenizer", "train", "worlds"
    )  # fmt: skip

    def words(self) -> list[str]:
        """Every word that deserves a token of its own."""
        return words()

    def phrases(self) -> list[str]:
        """Every fixed text that is one token."""
        return phrases.phrases(self.worlds)

    def samples(self, tokens: Any, stage: Stage, episodes: int, seed: tuple[int, ...]) -> Iterable[Sample]:
        """Demonstrations of a stage; `tokens` is the saved tokenizer."""
        others = {"no_think": self.no_think, "worlds": self.worlds}
        return generate(tokens, stage.mix, episodes, seed, single_turn=stage.single_turn, **others)

    def config(self, tokens: Tokenizer) -> Qwen2Config:
        """The model's shape."""
        ends = (tokens.token_to_id(one) for one in (tokenizer.END, tokenizer.END_OF_TEXT))
        return model.nano_config(tokens.get_vocab_size(), *ends)

    def save_tokenizer(self, tokens: Tokenizer, folder: Path) -> None:
        """Write the tokenizer with the chat template."""
        tokenizer.save_tokenizer(tokens, folder)

    def home(self, seed: int, key: str) -> Path:
        """The folder that the model is written to where none is given."""
        return cache() / key[:16]


def build(out: Path | None = None, seed: int = 0, force: bool = False, recipe: Recipe | None = None) -> Path:
    """Build the nano model, or find it built.

    Args:
        out: folder to write to; None takes a folder in the user's cache.
        seed: of weights, order and players.
        force: build even if the folder already holds this very model.
        recipe: another curriculum; None takes the default.

    Returns:
        The model's folder, which holds `model.safetensors` (bf16), `config.json`, the tokenizer and `build.json`.

    Raises:
        MissingExtra: torch is too old to build it (any torch can use it).
    """
    if not hasattr(torch.optim, "Muon"):
        raise MissingExtra(
            f"Building the nano model needs torch 2.9 or newer and this is {torch.__version__}: update it."
        )
    recipe = recipe or Recipe()
    key = content_key(recipe, seed)
    target = Path(out) if out else recipe.home(seed, key)
    if not force and _built(target) == key:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".nano-") as scratch:
        folder = Path(scratch)
        _make(folder, recipe, seed)
        made = {"key": key, "seed": seed, "threads": recipe.threads, "torch": torch.__version__}
        record = made | {"recipe": asdict(recipe)}
        (folder / "build.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        target.mkdir(exist_ok=True)
        for file in folder.iterdir():
            shutil.move(file, target / file.name)
    return target


def content_key(recipe: Recipe, seed: int) -> str:
    """A hash of all that decides the result: recipe, seed, the vocabulary (and so the prompts) and the code."""
    digest = hashlib.sha256()
    for part in (repr(recipe), str(seed), *recipe.words(), *recipe.phrases()):
        digest.update(part.encode() + b"\0")
    for name in recipe.files:
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return digest.hexdigest()


def _built(folder: Path) -> str | None:
    try:
        key = json.loads((folder / "build.json").read_text(encoding="utf-8"))["key"]
    except (OSError, ValueError, KeyError):
        return None
    return key if (folder / "model.safetensors").is_file() else None


def _make(folder: Path, recipe: Recipe, seed: int) -> None:
    tokens = tokenizer.build_tokenizer(recipe.words(), recipe.phrases())
    config = recipe.config(tokens)
    config.save_pretrained(folder)
    recipe.save_tokenizer(tokens, folder)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), TextColumn("{task.fields[note]}")) as bar, _threads(recipe.threads):
        task = bar.add_task("Playing", total=sum(stage.episodes for stage in recipe.stages), note="")
        samples = play(folder, recipe, seed, lambda done: bar.update(task, completed=done))
        nano = model.nano_model(config, seed)
        task = bar.add_task("Training", total=None, note="")

        def report(step: int, steps: int, loss: float) -> None:
            bar.update(task, completed=step, total=steps, note=f"loss {loss:.3f}")

        training.train(nano, samples, recipe.train, seed, report=report)
    nano.to(torch.bfloat16).save_pretrained(folder)


def play(folder: Path, recipe: Recipe, seed: int, progress: Callable[[int], None]) -> list[Sample]:
    """All demonstrations of a recipe in curriculum order, made by all cores; `folder` holds the tokenizer."""
    jobs = [
        (folder, recipe, stage, min(_CHUNK, stage.episodes - start), (seed, number, start // _CHUNK))
        for number, stage in enumerate(recipe.stages)
        for start in range(0, stage.episodes, _CHUNK)
    ]
    if len(jobs) == 1:
        return _play_chunk(*jobs[0])
    done = 0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_play_chunk, *job) for job in jobs]
        for future in as_completed(futures):
            done += len(future.result())
            progress(done)
        return [sample for future in futures for sample in future.result()]


def _play_chunk(folder: Path, recipe: Recipe, stage: Stage, episodes: int, seed: tuple[int, ...]) -> list[Sample]:
    from transformers import AutoTokenizer

    torch.set_num_threads(1)
    return list(recipe.samples(AutoTokenizer.from_pretrained(folder), stage, episodes, seed))


@contextmanager
def _threads(count: int):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)
