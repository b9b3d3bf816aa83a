"""One episode: what the model reads, what it answers, and what is kept for training."""
