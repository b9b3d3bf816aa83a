"""Training without an accelerator: verl and vLLM on the CPU, and a model that is small enough to learn there."""
