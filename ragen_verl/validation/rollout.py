"""Check `ragen.rollout` against the lengths and the engine of verl, and the policy loss."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from ragen_verl.config import RagenConfig
from ragen_verl.errors import RecipeError
from ragen_verl.training.losses import POLICY_LOSSES

__all__ = ["check_rollout"]


def check_rollout(config: DictConfig, ragen: RagenConfig) -> None:
    """Refuse lengths that do not fit into each other, and settings that verl's engine or loss cannot work with.

    Raises:
        RecipeError: one sentence that names the key and what to change.
    """
    _check_lengths(config, ragen)
    _check_sampling(config, ragen)
    _check_env_tokens(config, ragen)


def _check_lengths(config: DictConfig, ragen: RagenConfig) -> None:
    rollout = config.actor_rollout_ref.rollout
    whole = rollout.prompt_length + rollout.response_length
    turn, context = ragen.rollout.response_length, ragen.rollout.chat_context()
    shown = max(past - context.first(past) for past in range(ragen.rollout.max_turns))
    if turn > rollout.response_length:
        row = "row" if context.row_per_turn else "whole episode"
        raise RecipeError(
            f"ragen.rollout.response_length, {turn} tokens a turn, is more than the "
            f"{rollout.response_length} of a {row}: raise data.max_response_length."
        )
    if context.row_per_turn and shown * turn >= rollout.prompt_length:
        raise RecipeError(
            f"data.max_prompt_length is {rollout.prompt_length} but a prompt of context {ragen.rollout.context} holds "
            f"{shown} responses of up to {turn} tokens: raise the first, or show fewer turns."
        )
    if rollout.max_model_len is not None and rollout.max_model_len < whole:
        raise RecipeError(
            f"actor_rollout_ref.rollout.max_model_len is {rollout.max_model_len} but data.max_prompt_length and "
            f"data.max_response_length add up to {whole}: raise the first or lower one of the others."
        )


def _check_sampling(config: DictConfig, ragen: RagenConfig) -> None:
    """Refuse seeds with chunked prompts on the CPU: vLLM 0.32 rewinds the request's generator there, and fails."""
    chunked = config.actor_rollout_ref.rollout.enable_chunked_prefill
    if config.trainer.device == "cpu" and ragen.rollout.seeded_sampling and chunked:
        raise RecipeError(
            "ragen.rollout.seeded_sampling on the CPU needs prompts in one piece: set "
            "actor_rollout_ref.rollout.enable_chunked_prefill to false, or seeded_sampling to false."
        )


def _check_env_tokens(config: DictConfig, ragen: RagenConfig) -> None:
    """Refuse a loss on environment tokens where something needs the engine's log-probabilities, or turns."""
    if not ragen.rollout.loss_on_env_tokens:
        return
    for key in ("algorithm.rollout_correction.bypass_mode", "actor_rollout_ref.rollout.calculate_log_probs"):
        if OmegaConf.select(config, key):
            raise RecipeError(
                "ragen.rollout.loss_on_env_tokens trains on tokens that the engine has no log-probabilities for: "
                f"set {key} to false."
            )
    key = "actor_rollout_ref.actor.policy_loss.loss_mode"
    mode = OmegaConf.select(config, key)
    if mode in POLICY_LOSSES and POLICY_LOSSES[mode].needs_turns:
        raise RecipeError(
            f"{key} is {mode}, which finds turns in the response mask, and ragen.rollout.loss_on_env_tokens makes "
            "one stretch of the whole response: set it to false, or use a loss without turns."
        )
