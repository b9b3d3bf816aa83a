"""Everything that can be refused before Ray starts: keys, values, combinations, lengths, the model's chat template."""
