"""Pictures of what a run did, made from its folder."""
