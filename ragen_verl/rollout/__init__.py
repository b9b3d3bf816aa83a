"""One episode: what the model is told, what it answers, what is kept for training."""
