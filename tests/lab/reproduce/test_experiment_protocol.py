"""What a protocol refuses, and the items of the package."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf
from protocol_runs import SWEEP, read
from ragen_lab.reproduce.catalogue import experiments, find
from ragen_lab.reproduce.measure import statistics_of
from ragen_lab.reproduce.results import earlier_result
from ragen_lab.reproduce.settings import compared, differing, unpacked
from ragen_lab.reproduce.sweep import Sweep

from ragen_verl.cli.prepare import prepare
from ragen_verl.errors import RecipeError
from ragen_verl.runs.folder import RunFolder

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "reproduction"
NANO = tuple(f"e{number}" for number in range(21))
PAPER = (
    *(f"ragen_figure{number}" for number in range(5, 12)),
    *("ragen_table1", "ragen_table2", "ragen_table3", "ragen_table4", "ragen_v2_table5", "ragen_v2_figure10"),
    *("ragen_v2_figure12", "ragen_v2_figure13", "ragen_webshop", "ragen_sft", "ragen_lora"),
    *("ragen2_table4_algorithms", "ragen2_table4_models", *(f"ragen2_table{number}" for number in range(5, 10))),
    *("ragen2_noise", "ragen2_top_p", "ragen2_kl", "ragen2_entropy"),
    *("ragen2_gradient_buckets", "ragen2_mutual_information"),
)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("4010000]", "3010500]", "3010000 and 3010500 are 500 apart"),
        (", 4010000]", "]", "seeds of small are 4 and its protocol needs 5"),
        ("first: [c]", "first: [d]", "names the variant d"),
        ("noise: {success: 0.05}", "noise: {entropy: 0.05}", "says nothing of the panel success"),
        ("second: [b], decides", "second: [b, a], decides", "has 1 and 2 variants"),
        ("than: 0.5", "second: [b], than: 0.5", "one of second and than"),
        ("than: 0.5", "than: 30", "between 0 and 1, such as 0.5"),
        ("scale: nano", "scale: micro", "one of nano, paper"),
        ("{kind: collapse}", "{kind: correlation, metric: m}", "needs against"),
        ("{kind: collapse}", "{kind: collapse, metric: m}", "has no metric"),
        ("{kind: collapse}", "{kind: collapse, event: {metric: m, below: 1, above: 1}}", "one of below and above"),
        ("cost: {minutes: 1,", "cost: {minutes: 1, gpu_hours: 2,", "one of minutes and gpu_hours"),
        ("rule: by the interval", "rules: by the interval", "did you mean rule"),
        ("scale: nano", "scale: nano\n  looks: {5: 0.03, 8: 0.03}", "levels add up to 0.05"),
        ("scale: nano", "scale: nano\n  looks: {5: 0.02, 8: 0.03}", "seeds of small are 5 and its protocol needs 8"),
        ("name: c against b", "name: a against b", "have one name"),
        ("variant: a, panel", "variant: z, panel", "names the variant z"),
    ],
)
def test_what_cannot_decide_is_refused(tmp_path: Path, before: str, after: str, words: str) -> None:
    assert before in SWEEP
    with pytest.raises(RecipeError, match=words.replace("[", r"\[")):
        read(tmp_path, SWEEP.replace(before, after, 1))


def test_every_item_has_a_protocol() -> None:
    for item in (*NANO, *PAPER):
        assert find(item), item
    assert {one.protocol.scale for one in experiments().values()} == {"nano", "paper"}


def test_nano_experiments_cover_items_that_there_are() -> None:
    for one in experiments().values():
        if one.protocol.scale == "nano":
            assert all(find(item, "paper") for item in one.protocol.covers), one.name
            assert one.protocol.covers


def test_an_item_is_found_by_scale() -> None:
    assert [one.name for one in find("ragen_figure9")] == ["ragen_figure9"]
    nano = {name: one.protocol for name, one in experiments().items() if one.protocol.scale == "nano"}
    names = [name for name, one in nano.items() if "ragen_figure9" in one.covers]
    assert {"e2_starpo_s", "e5_bandit_risk", "e14_where_ppo_learns"} < set(names)
    assert [one.name for one in find("ragen_figure9", "nano")] == names
    with pytest.raises(RecipeError, match="did you mean ragen_figure9"):
        find("ragen_figure99")
    with pytest.raises(RecipeError, match="no experiment at the scale nano"):
        find("ragen_sft", "nano")


def test_every_protocol_evaluates_what_its_statistic_needs() -> None:
    for one in experiments().values():
        for statistic in statistics_of(one.protocol).values():
            assert statistic.last <= 100, one.name
        primary = one.protocol.statistic.metric or ""
        if one.protocol.scale == "nano" and primary.startswith("val-env/"):
            whole = "ragen.val.envs.0.groups=512" in one.overrides
            assert whole or "actor_rollout_ref.rollout.val_kwargs.n=4" in one.overrides, one.name


def test_a_follow_up_has_other_seeds_than_what_it_follows() -> None:
    known = experiments()
    pairs = [(one, known[one.protocol.follows]) for one in known.values() if one.protocol.follows]
    assert pairs
    for one, before in pairs:
        assert not set(one.seeds) & set(before.seeds[: before.protocol.least_seeds]), one.name


def test_shared_runs_have_the_settings_of_their_own_sweep(tmp_path: Path) -> None:
    folder, known = RunFolder(tmp_path), experiments()
    for sweep in known.values():
        for variant, runs in sweep.runs_of.items():
            owner, name = runs.split("/")
            wanted, found = (_settings(one, label, folder) for one, label in ((sweep, variant), (known[owner], name)))
            assert wanted == found, (sweep.name, variant)
            if sweep.protocol.follows != owner:
                assert set(sweep.seeds[: sweep.protocol.least_seeds]) <= set(known[owner].seeds)


def _settings(sweep: Sweep, variant: str, folder: RunFolder) -> dict:
    config = prepare(sweep.recipe, sweep.overrides_of(variant, sweep.seeds[0], folder)).config
    return compared(OmegaConf.to_container(config))


@pytest.mark.parametrize("name", sorted(file.stem for file in RESULTS.glob("e*.json")))
def test_committed_runs_have_todays_settings(name: str) -> None:
    """A key that got another name belongs into `settings._RENAMED`, and a default that changed into the experiment."""
    sweep, result = experiments()[name], earlier_result(experiments()[name], RESULTS)
    variant = result["runs"][0]["variant"]
    folder = RunFolder(Path("none"))
    config = prepare(sweep.recipe, sweep.overrides_of(variant, sweep.seeds[0], folder), machine=False).config
    usual = compared(OmegaConf.to_container(prepare(sweep.recipe, [], machine=False).config))
    assert not differing(unpacked(result["settings"])[variant], compared(OmegaConf.to_container(config)), usual)
