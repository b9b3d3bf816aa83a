from guess_number import GuessNumber
from ragen_lab.testing import check_env


def test_it_keeps_the_rules():
    check_env(GuessNumber, largest=8)
