"""`ragen-verl doctor model FOLDER`."""

from __future__ import annotations

import pytest
from tool_templates import COUNTS, HERMES, THINKS, tokenizer

from ragen_verl.cli.doctor_model import facts_of
from ragen_verl.errors import RecipeError


def test_it_says_what_a_template_does(tmp_path):
    found = {}
    for name, template in {"hermes": HERMES, "thinks": THINKS, "counts": COUNTS}.items():
        tokenizer(template).save_pretrained(tmp_path / name)
        found[name] = facts_of(str(tmp_path / name))
    assert found["hermes"]["calls"] == found["thinks"]["calls"] == "hermes"
    assert found["hermes"]["calls in a reply"] == "any number" and "<|im_end|>" in found["hermes"]["stop ids"]
    assert "think" in found["thinks"]["a reply begins with"] and "think" not in found["hermes"]["a reply begins with"]
    assert "differently after several calls" in found["counts"]["as text because"]


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="No tokenizer can be loaded"):
        facts_of(str(tmp_path))
