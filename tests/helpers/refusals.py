"""What every refusal of a recipe is: one sentence that names what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ragen_verl.errors import RecipeError


@contextmanager
def refused(words: str) -> Iterator[None]:
    """What happens inside is refused in one sentence with these words."""
    with pytest.raises(RecipeError) as refusal:
        yield
    message = str(refusal.value)
    assert words in message
    assert "\n" not in message and message.endswith((".", "?"))
