"""What is said before a training starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragen_verl.cli.prepare import prepare
from ragen_verl.cli.resume import tell


@pytest.mark.parametrize(("shared", "said"), [("true", True), ("false", False)])
def test_cross_fitting_with_one_draw_a_group_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shared: str, said: bool
) -> None:
    overrides = ["algorithm=starpo_s", "ragen.filter.cross_fit=true", f"ragen.rollout.shared_group_rng={shared}"]
    tell(prepare("nano/bandit", [*overrides, f"ragen.run.dir={tmp_path / 'run'}"], machine=False))
    found = capsys.readouterr()
    assert ("does not remove the bias of the filter" in " ".join((found.out + found.err).split())) == said
