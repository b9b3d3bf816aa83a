"""The environments that come with ragen_verl: one small module each, numpy and gymnasium only."""
