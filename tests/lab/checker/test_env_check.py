"""The checker: good environments pass, and every broken one is caught by the rule it breaks."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace

import broken_envs
import numpy as np
import pytest
from broken_envs import Says, Walk
from paths import HELPERS, ROOT
from ragen_lab.checker import FULL, QUICK, RULES, Profile, Subject, check
from ragen_lab.checker.calls import Calls
from ragen_lab.checker.costs import load_tokenizer, measure
from ragen_lab.checker.record import difference
from ragen_lab.checker.rules import IN_CALLS, describe
from ragen_lab.testing import check_env
from typer.testing import CliRunner

from ragen_verl import make
from ragen_verl.cli import app
from ragen_verl.env import registry
from ragen_verl.errors import BadEnvKwargs, RecipeError

TINY = Profile(episodes=3, seeds=3, steps=8, budget=8, neighbours=12)
EXAMPLE = ROOT / "examples" / "my_env"


def checked(kind, profile=TINY, **options):
    options.setdefault("skip", ["processes"])
    return check(Subject.of(kind), profile, **options)


def run(*args: str, input: str | None = None):
    return CliRunner().invoke(app, ["env", *args], input=input, env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def registered(monkeypatch):
    """A function that registers a class of `broken_envs` for this test."""
    monkeypatch.setattr(registry, "_registered", {})

    def register(name: str) -> str:
        registry.register(f"{name}-v0", getattr(broken_envs, name))
        return f"{name}-v0"

    return register


def test_a_generator_of_a_member_may_be_made_in_step():
    assert "groups" not in checked(broken_envs.SlipsAnewByMember).broken


@pytest.mark.parametrize("kind", [Walk, Says])
def test_a_good_environment_keeps_every_rule(kind):
    report = check(Subject.of(kind), TINY)
    assert report.ok and str(report) == f"{kind.__name__} keeps every rule."
    unchecked = [name for name, verdict in report.rules.items() if verdict.word != "kept"]
    assert unchecked == ([] if kind is Walk else ["success", "oracle"])
    assert list(report.rules) == [*IN_CALLS, *RULES] and all(describe(name).endswith(".") for name in report.rules)


@pytest.mark.parametrize(
    ("name", "rule", "words"),
    [
        ("DrawsFromRandom", "generators", "moves the global generator of random"),
        ("DrawsFromRandom", "generators", "another state of the global generators gives another episode"),
        ("SeedsNumpy", "generators", "moves the global generator of numpy.random"),
        ("UnseededGenerator", "seeds", "a second instance plays seed"),
        ("LeftOver", "seeds", "an instance that played before plays seed"),
        ("OwnThread", "threads", "ProgrammingError: SQLite objects created in a thread"),
        ("ClosesInItsThread", "threads", "close() raised ProgrammingError"),
        ("MainThreadOnly", "exceptions", 'keep nothing that belongs to one thread, or set isolation = "process"'),
        (
            "LocalPlace",
            "threads",
            'another outcome; keep nothing that belongs to one thread, or set isolation = "process"',
        ),
        ("MembersApart", "groups", "start with different observation"),
        ("SharedPlace", "instances", "beside another instance"),
        ("SharedScratch", "instances", "beside 12 others in threads"),
        ("HoldsALock", "copies", "copy.deepcopy raised TypeError"),
        ("HoldsALock", "copies", "pickle raised TypeError"),
        ("CopiesAreTheSame", "copies", "shares something with the original"),
        ("RaisesOnText", "exceptions", "raised ValueError: invalid literal"),
        ("EndsTheProcess", "exceptions", "raised SystemExit: 3"),
        ("NanReward", "rewards", "is nan"),
        ("TextReward", "rewards", "is '1'"),
        ("ArrayObservation", "observations", "is array([0., 0., 0.]), not text"),
        ("BytesAtReset", "observations", "of reset(seed=0, rollout_index=0) is b'"),
        ("HalfACharacter", "observations", "cannot be encoded"),
        ("OutsideCharset", "observations", "'é', not in charset"),
        ("FourValues", "results", "not five values"),
        ("NoFlags", "results", "lacks action_is_valid, action_is_effective"),
        ("ArrayOfSuccess", "results", "info['success'] of step('Left') is array([False])"),
        ("WrittenSuccess", "results", "info['success'] of step('Left') is 'False'"),
        ("OneSpelling", "texts", "'LEFT' is not taken for 'Left'"),
        ("MovesOnAnything", "texts", "is none of the action names and yet valid"),
        ("PaysForNonsense", "texts", "is no valid action and yet earns 1"),
        ("OracleWalks", "oracle", "asking oracle() for a plan changes the episode"),
        ("OraclePlansNonsense", "oracle", "plans 'Forward' for seed 0, which is no valid action"),
        ("NoBudget", "interface", "max_actions is 0"),
        ("ListOfActions", "interface", "make it a tuple of names"),
        ("TwiceTheSameName", "interface", "differ in case only"),
        ("LineBreakInAName", "interface", "'Right\\nnow' has a line break"),
        ("SolvedAndCut", "success", "is solved, but its episode is reported as truncated"),
        ("SeparatorInAName", "interface", "holds ||"),
        ("Secret", "groups", "rollouts 0 and 1 of seed 0 start with different self.secret"),
        ("SecretInSlots", "groups", "rollouts 0 and 1 of seed 0 start with different self.box.number"),
        ("OracleWinsSeldom", "oracle", "solved 33% of 3 episodes, though nothing in them is left to chance"),
        ("TruncatesOnNonsense", "texts", "is no valid action and yet changes the world"),
        ("MovesUnseen", "texts", "yet changes what the next actions do"),
        ("AnyLongTextWins", "texts", "solves the task: does any long text?"),
        ("NoTextWins", "texts", "'' solves the task: does any empty text?"),
        ("LeavesFilesOpen", "traces", "open files behind"),
        ("LeavesThreads", "traces", "threads behind"),
        ("Prints", "traces", "prints 'a step'"),
        ("SecretPlan", "groups", "different plans of oracle()"),
        ("SlipsWithTheGroup", "groups", "step draws from self.np_random"),
        ("SlipsWithItsOwn", "groups", "step draws from self.luck['of']"),
        ("SlipsWithNumpys", "groups", "step draws from self.luck['of']"),
        ("SlipsAnew", "groups", "step makes a generator from the group's seed"),
        ("SlipsAnewWithPythons", "groups", "step makes a generator from the group's seed"),
        ("KeepsMemory", "traces", "every episode keeps 2.1 MB more"),
        ("KeepsItsOwn", "traces", "every episode keeps 2.1 MB more"),
        ("OracleNeverWins", "oracle", "following oracle() solved none of 3 episodes"),
        ("SuccessNeverSet", "success", "info['success'] is never true"),
        ("NoEndAfterWinning", "success", "is solved, but its episode continues"),
        ("NoInstruction", "interface", "instruction is empty"),
        ("ShowsNothing", "sizes", "observations are empty"),
        ("ShowsABook", "sizes", "tokens, more than 8,192"),
        ("NoEndOfTheBudget", "interface", "max_actions is 1,000,000,000"),
    ],
)
def test_every_broken_environment_is_caught(name, rule, words):
    report = checked(getattr(broken_envs, name))
    assert rule in report.broken
    assert any(words in problem for problem in report.rules[rule].problems), report.rules[rule].problems
    assert f"{rule}: " in str(report) and not report.ok


def test_another_working_directory_is_found(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    report = checked(broken_envs.ChangesTheFolder)
    assert report.broken == ["traces"] and "changes the working directory" in str(report)


@pytest.mark.filterwarnings("always:Another version")
def test_a_changed_variable_is_found(monkeypatch):
    monkeypatch.setenv("RAGEN_WALK", "before")
    (found,) = checked(broken_envs.SetsAVariable).rules["traces"].problems
    assert "changes the variable RAGEN_WALK of os.environ" in found


def test_a_warning_is_no_print(monkeypatch):
    monkeypatch.setattr("warnings.showwarning", lambda message, *place: sys.stderr.write(f"{message}\n"))
    assert checked(broken_envs.Warns, skip=[name for name in RULES if name not in ("interface", "traces")]).ok


@pytest.mark.parametrize(("kind", "same"), [(broken_envs.OneLevel, True), (Walk, False), (Says, False)])
def test_seeds_of_one_level_are_noted(kind, same):
    assert any("begin the same level" in note for note in checked(kind).notes) == same


def test_a_salted_hash_shows_in_another_process():
    report = check(Subject.of(broken_envs.SaltedHash), TINY)
    assert report.broken == ["processes"]
    assert "hash()" in str(report)


def test_a_process_of_its_own_has_one_thread(registered):
    report = check(Subject.of(registered("OwnThreadApart")), TINY, skip=["processes"])
    assert report.ok, report


def test_what_another_process_cannot_import_is_left_unchecked():
    class Local(Walk):
        pass

    report = check(Subject.of(Local), TINY, skip=["copies"])  # pickle does not find it either
    assert report.ok and report.rules["processes"].unchecked.startswith("another process cannot import")


@pytest.mark.parametrize("name", ["Sleeps", "SleepsAtReset"])
def test_a_call_that_hangs_is_named_and_ends_the_check(name):
    report = checked(getattr(broken_envs, name), replace(TINY, limit=0.2))
    assert report.broken == ["time"]
    assert "did not return within 0.2 s" in report.rules["time"].problems[0]
    assert report.rules["budget"].unchecked == "a call hangs" and report.rules["seeds"].word == "not checked"


def test_a_lock_of_another_thread_is_named_with_its_cure():
    report = checked(broken_envs.HoldsItsLock, replace(TINY, limit=0.2))
    assert report.broken == ["time"] and 'set isolation = "process"' in report.rules["time"].problems[0]


def test_a_call_that_holds_the_interpreter_ends_its_process(tmp_path):
    code = "from ragen_verl import register; from ragen_verl.cli import app\n"
    code += "register('Holds-v0', 'broken_envs:HoldsTheInterpreter')\n"
    code += "app(['env', 'check', 'Holds-v0', '--limit', '0.5', '--skip', 'processes'])"
    environment = {**os.environ, "PYTHONPATH": str(HELPERS)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 1
    assert "Timeout" in done.stderr and "broken_envs.py" in done.stderr and "in step" in done.stderr


def test_the_global_generators_are_as_they_were_after_a_check():
    random.seed(5)
    np.random.seed(5)
    expected = random.Random(5).random(), np.random.RandomState(5).random()
    checked(broken_envs.DrawsFromRandom)
    assert (random.random(), np.random.random()) != expected  # it draws in other rules as well
    random.seed(5)
    np.random.seed(5)
    checked(Walk)
    assert (random.random(), np.random.random()) == expected


def test_every_instance_is_closed():
    opened, closed = [], []

    class Counted(Walk):
        def __init__(self):
            super().__init__()
            opened.append(self)

        def close(self):
            closed.append(self)

    assert checked(Counted, skip=["processes", "copies"]).ok
    assert {id(env) for env in opened} <= {id(env) for env in closed}


def test_scores_and_stop_reasons_are_those_of_the_rollout():
    facts = checked(Walk, replace(TINY, episodes=30, budget=2000)).facts
    good, bad = facts["scores"]["oracle"], facts["scores"]["random"]
    assert good["success"] == 1.0 and good["return"] == 1.0 and good["stops"] == {"solved": 30}
    assert set(bad["stops"]) == {"solved", "action_budget"} and 0 < bad["success"] < 1
    assert bad["stops"]["solved"] == round(30 * bad["success"])
    assert checked(Says).facts["scores"]["oracle"] is None


def test_a_smaller_budget_cuts_scored_episodes():
    report = checked(Walk, replace(TINY, episodes=20, budget=1))
    scores = report.facts["scores"]
    assert report.ok, "an oracle that the check itself cuts off is not blamed"
    assert scores["oracle"]["actions"] == 20 and "action_budget" in scores["oracle"]["stops"]


def test_the_random_player_does_not_know_the_environment_s_draws():
    scores = checked(broken_envs.Mastermind, replace(TINY, episodes=40, budget=1)).facts["scores"]
    assert 0 <= scores["random"]["success"] < 0.3


def test_a_player_without_a_valid_move_is_told_about():
    report = checked(broken_envs.NoValidMove)
    assert report.ok and "so little was tested" in str(report) and not checked(Says).notes
    assert report.as_json()["notes"] == report.notes


def test_a_game_that_chance_wins_is_told_about():
    report = checked(broken_envs.WinsByItself)
    assert report.ok and "The random player solves 100% of the episodes" in str(report)


def test_a_slow_environment_is_checked_with_smaller_numbers():
    seen = []
    profile = Profile(step_seconds=0.025)
    report = check(Subject.of(broken_envs.Slow), profile, skip=["copies"], progress=lambda *state: seen.append(state))
    assert report.broken == ["sizes"] and "half of the steps take 0.03" in str(report)
    assert "smaller numbers" in report.notes[0] and report.facts["scores"]["random"]["episodes"] == 4
    assert {rule for rule, _ in seen} == {*RULES} and len(seen) > len(RULES)
    assert [calls for _, calls in seen] == sorted(calls for _, calls in seen)


@pytest.mark.parametrize("name", ["SlowToBegin", "SlowToBuild"])
def test_an_episode_that_is_slow_to_begin_is_found(name):
    kind = getattr(broken_envs, name)
    assert "to begin (building it and reset)" in str(checked(kind, replace(TINY, begin_seconds=0.02)))
    assert checked(kind, replace(TINY, begin_seconds=60)).ok


def test_a_budget_without_end_is_not_played_to_it():
    report = checked(broken_envs.NoEndOfTheBudget, QUICK)
    assert report.facts["scores"]["random"]["actions"] == QUICK.budget * QUICK.episodes


def test_clocks_and_generators_are_no_hidden_state():
    class Steady(Walk):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed, options=options)
            self.begun = time.perf_counter_ns()
            self.own = random.Random(int(self.dynamics.integers(1000)))
            self.deep = {"a": [np.arange(3), {"b": {1, 2}}], "nan": float("nan"), "itself": self}
            return self.render(), {}

    assert checked(Steady, skip=["processes", "copies"]).ok


def within(number):
    held = Says()
    held.number = number
    return held


@pytest.mark.parametrize("hide", [str, lambda x: {"a": {"b": x}}, lambda x: [np.array([x])], within, lambda x: {x}])
def test_hidden_state_is_found_where_it_lies(hide):
    class Hides(Walk):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed, options=options)
            self.held = hide(self.rollout_index)
            return self.render(), {}

    assert "start with different self.held" in str(checked(Hides, skip=["processes", "copies"]))


def test_measures_are_there_and_in_order():
    facts = checked("Sokoban-v0").facts
    for name in ("reset", "step"):
        times = list(facts["milliseconds"][name].values())
        assert times == sorted(times) and times[0] > 0
    [length] = load_tokenizer("nano")([make("Sokoban-v0").reset(seed=0)[0]])
    assert facts["tokens"]["max"] >= length > 6 and facts["steps_per_second"] > 0


def test_the_empty_end_of_an_episode_is_shown_to_nobody():
    assert measure(Subject.of("Lockbox-v0"), FULL, Calls(60))["tokens"]["empty"] == 0


def test_a_tokenizer_of_ones_own_counts(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"Which": 0, "one?": 1, "[UNK]": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(tmp_path / "tokenizer.json"))
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        assert checked(Says, tokenizer=str(path)).facts["tokens"]["max"] == 2
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(RecipeError, match="There is no tokenizer at"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize("sizes", [{"episodes": 0}, {"limit": 0}, {"budget": -1}, {"neighbours": 0}])
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(RecipeError, match=next(iter(sizes))):
        Profile(**sizes)


def test_recordings_are_compared():
    assert difference([["start"], ["Up", 1]], [["start"], ["Up", 1]]) is None
    assert "start" in difference([["start", 1]], [["start", 2]])
    assert "action 1 ('Up')" in difference([["start"], ["Up", 1]], [["start"], ["Up", 2]])
    assert "after 1 actions, the other after 0" in difference([["start"], ["Up", 1]], [["start"]])


# -- for authors ------------------------------------------------------------------------------------------------------


def test_check_env_takes_classes_ids_and_arguments():
    assert check_env(Walk, profile=TINY, length=6).kwargs == {"length": 6}
    assert check_env("FrozenLake", profile=TINY, size=3).ok
    with pytest.raises(AssertionError, match=r"NanReward breaks 3 rule\(s\).\nrewards: the reward of step"):
        check_env(broken_envs.NanReward, profile=TINY, skip=["processes"])
    assert check_env(broken_envs.HoldsALock, profile=TINY, skip=["copies"]).rules["copies"].unchecked == "skipped"
    with pytest.raises(BadEnvKwargs, match="sice"):
        check_env("FrozenLake", sice=3)
    with pytest.raises(RecipeError, match=r"CannotBeBuilt cannot be built: .*KeyError"):
        check_env(broken_envs.CannotBeBuilt)
    with pytest.raises(RecipeError, match="builds a dict"):
        check_env(dict)
    with pytest.raises(RecipeError, match="no rule 'luck'"):
        check_env(Walk, skip=["luck"])


def test_the_example_passes_its_own_test():
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_guess_number.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=EXAMPLE)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


# -- the commands -----------------------------------------------------------------------------------------------------


def test_the_command_reports_and_exits_with_0():
    result = run("check", "FrozenLake", "size=3", "--quick", "--skip", "processes", "--episodes", "6")
    assert result.exit_code == 0, result.output
    for words in ("FrozenLake size=3", "No rule is broken", "over 6", "steps a second", "tokens (nano)", "oracle"):
        assert words in result.output
    assert all(name in result.output for name in RULES)


def test_the_command_exits_with_1_and_names_the_rule(registered):
    result = run("check", registered("NanReward"), "--quick", "--skip", "processes")
    assert result.exit_code == 1
    assert "Broken: rewards, interface, budget." in result.output and "is nan, not a finite number" in result.output


def test_the_command_prints_json(registered):
    result = run("check", registered("MembersApart"), "--quick", "--skip", "processes", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1 and report["ok"] is False
    assert report["rules"]["groups"]["verdict"] == "broken" and report["rules"]["copies"]["verdict"] == "kept"
    assert report["facts"]["scores"]["oracle"]["success"] == 1.0


def test_the_command_refuses_in_one_sentence():
    for args, words in (
        (["Sokobann"], "Sokoban-v0"),
        (["Sokoban", "dimension=3"], "dim"),
        (["Sokoban", "--skip", "x"], "rules are"),
    ):
        result = run("check", *args)
        assert result.exit_code == 2 and words in result.stderr and len(result.stderr.strip().splitlines()) == 1


def test_playing_by_hand_to_the_goal():
    env = make("FrozenLake", success_rate=1.0)
    env.reset(seed=3)
    plan = env.oracle()
    result = run("play", "FrozenLake", "success_rate=1.0", "--seed", "3", input="\n".join(["oracle", *plan]) + "\n")
    assert result.exit_code == 0, result.output
    assert " || ".join(plan) in result.output and env.instruction in result.output
    assert "Return 1; stop reason: solved" in result.output


def test_play_takes_numbers_and_beginnings_of_names():
    said = ["3", "d", "sideways", "", "99", "hint", "help", "quit"]
    result = run("play", "FrozenLake", "success_rate=1.0", "--seed", "3", input="\n".join(said) + "\n")
    env = make("FrozenLake", success_rate=1.0)
    env.reset(seed=3)
    for name in ("Right", "Down"):
        assert env.step(name).observation in result.output
    assert result.output.count("No action") == 3 and "Return 0; stop reason: stopped by hand" in result.output
    assert "action (8 left)> " in result.output


def test_playing_by_hand_ends_with_the_budget_and_with_the_input():
    result = run("play", "Sokoban", input="hint\n" * 2 + "up\n" * 30)
    assert "stop reason: action_budget" in result.output and "action (1 left)> " in result.output
    assert "stop reason: stopped by hand" in run("play", "Sokoban", input="").output


def test_a_person_answers_what_an_agent_asks() -> None:
    asked = '{"name": "ask_human", "arguments": {"question": "Whom?"}}'
    result = run("play", "ToolWorld", "human=true", "missing=1", input=f"{asked}\nMy aunt.\n")
    assert "Whom?" in result.output and "\nMy aunt.\nreward 0\n" in result.output


def test_free_text_is_played_as_it_is_typed(registered):
    id = registered("Says")
    env = make(id)
    env.reset(seed=0)
    result = run("play", id, input=f":hint\n21\n{env.number}\n")
    assert "No plan is known from here." in result.output and "stop reason: solved" in result.output


def test_the_list_builds_nothing_and_keeps_variants_together():
    code = "import sys, time\nfrom ragen_verl.cli import app\n"
    code += "try: app(['env', 'list'])\nexcept SystemExit: pass\n"
    code += "print(*{'torch', 'verl', 'ray', 'transformers', 'bm25s', 'datasets'} & set(sys.modules), sep=',')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    *lines, loaded = done.stdout.splitlines()
    assert loaded == "" and done.returncode == 0, done.stderr
    place = next(number for number, line in enumerate(lines) if line.startswith("FrozenLake-v0"))
    assert lines[place + 1].startswith("  CoordFrozenLake-v0  frozen=0.9")
