"""Saved trajectories in formats of other programs: chats for supervised fine-tuning, preference pairs, spans."""
