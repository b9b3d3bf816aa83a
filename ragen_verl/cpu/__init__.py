"""The default without an accelerator: verl and vLLM on the CPU, and a model small enough to learn there."""
