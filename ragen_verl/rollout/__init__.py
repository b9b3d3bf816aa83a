"""The rollout of one episode: prompts, token ids, the episode itself, and its rows for training."""
