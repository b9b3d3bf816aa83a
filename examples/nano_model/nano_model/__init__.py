"""How the nano model is made: tokenizer, scripted play, training. The weights ship in `ragen_verl/cpu/nano_model`."""
