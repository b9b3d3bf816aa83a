"""`python -m ragen_verl`: the command line where the console script is not on the path."""

from ragen_verl.cli import app

app()
