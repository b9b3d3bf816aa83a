"""Checkpoints as verl leaves them, of small tensors."""

from __future__ import annotations

from pathlib import Path

import torch

KINDS = ("model", "optim", "extra_state")


def save(folder: Path, step: int, ranks: int = 1, critic: bool = False, size: int = 50) -> Path:
    """The checkpoint of a step below `folder`, which verl's file then names as the newest."""
    checkpoint = folder / f"global_step_{step}"
    for part in ("actor", "critic")[: 1 + critic]:
        (checkpoint / part / "huggingface").mkdir(parents=True, exist_ok=True)
        (checkpoint / part / "fsdp_config.json").write_text("{}")
        for kind in KINDS:
            for rank in range(ranks):
                tensors = {f"{kind}.{i}": torch.full((size,), float(step + rank)) for i in range(3)}
                torch.save(tensors, checkpoint / part / f"{kind}_world_size_{ranks}_rank_{rank}.pt")
    torch.save({"position": step}, checkpoint / "data.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text(str(step))
    return checkpoint


def cut(file: Path, share: float = 0.5) -> None:
    """Leave the first part of a file."""
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
