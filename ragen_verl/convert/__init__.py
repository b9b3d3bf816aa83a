"""Saved trajectories as other programs want them: chats for supervised fine-tuning, preference pairs, spans."""
