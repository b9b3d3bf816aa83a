"""verl's dataset of chats, with the ids and the loss mask of a rollout."""

from __future__ import annotations

from typing import Any

import torch
from omegaconf import OmegaConf
from ragen_lab.sft.parquet import LAST_ONLY
from ragen_lab.sft.rows import encode
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

from ragen_verl.config.rollout import Rollout
from ragen_verl.config.schema import parse

__all__ = ["ROLLOUT", "DemonstrationDataset"]

ROLLOUT = "ragen_rollout"
"""The key of verl's `data` block that has the recipe's `ragen.rollout`."""


class DemonstrationDataset(MultiTurnSFTDataset):
    """Chats that `ragen-verl collect` wrote; `data.custom_cls` of verl's trainer names this class.

    The base class reads the files. Its ids come from each message rendered alone, with a loss on the prefill and on
    the template's text after the end of turn; here the ids and the mask are those of `ragen_lab.sft.rows`.
    """

    def __init__(self, parquet_files: Any, tokenizer: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        rollout = OmegaConf.to_container(config[ROLLOUT], resolve=True)
        self._protocol = parse(Rollout, rollout, "ragen.rollout").chat_protocol()
        super().__init__(parquet_files, tokenizer, config, *args, **kwargs)

    def _read_files_and_process(self) -> None:
        super()._read_files_and_process()
        self._chat = self._protocol.chat(self.tokenizer, self.apply_chat_template_kwargs)
        self._last_only = self.dataframe[LAST_ONLY].tolist()

    def __getitem__(self, item: int) -> dict[str, Any]:
        """One chat: `input_ids`, `position_ids` and `loss_mask`, int64 of shape (length,)."""
        ids, mask = encode(self._chat, self.messages[item], self._last_only[item])
        if len(ids) > self.max_length:
            raise ValueError(f"chat {item} has {len(ids)} tokens, and data.max_length is {self.max_length}")
        return {
            "input_ids": torch.tensor(ids),
            "position_ids": torch.arange(len(ids)),
            "loss_mask": torch.tensor(mask),
        }
