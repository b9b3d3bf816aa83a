"""Evaluators over trajectories of real environments."""

from __future__ import annotations

import pytest
from env_servers import serving
from ragen_envs.frozen_lake import FrozenLake
from ragen_lab.score.registry import EVALUATORS, evaluator, run
from saved_episodes import episode, plan, played

from ragen_verl import Env
from ragen_verl.env import make, register
from ragen_verl.errors import RecipeError


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """Whatever a test registers is gone after it."""
    monkeypatch.setattr(EVALUATORS, "_things", dict(EVALUATORS.items()))


def scores(*trajectories, **options):
    run(trajectories, options=options)
    return [one.scores for one in trajectories] if len(trajectories) > 1 else trajectories[0].scores


# -- the way ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [("FrozenLake-v0", {}), ("Sokoban-v0", {}), ("Blocksworld-v0", {}), ("Hanoi-v0", {}), ("Countdown-v0", {})],
)
def test_the_oracle_wastes_nothing(env_id, kwargs):
    found = scores(played([[action] for action in plan(env_id, **kwargs)], env_id, **kwargs))
    wanted = {"task_completion": 1, "goal_progress": 1, "step_efficiency": 1, "trajectory_score": 1}
    wanted |= {"unnecessary_turns": 0, "repeated_states": 0, "backtracking": 0, "repeated_actions": 0}
    assert {name: found[name] for name in wanted} == wanted
    assert found["reward_hacking"] == 0


def test_a_detour_costs_efficiency_and_is_seen_as_backtracking():
    way = plan("Hanoi-v0")
    undone = (played([[way[0]], [action]], "Hanoi-v0") for action in make("Hanoi-v0").actions)
    undo = next(one.turns[1]["actions"] for one in undone if one.turns[1]["observation"] == one.turns[0]["state"])
    found = scores(played([[way[0]], undo, *([action] for action in way)], "Hanoi-v0"))
    turns = len(way) + 2
    assert found["step_efficiency"] == pytest.approx(len(way) / turns)
    assert found["unnecessary_turns"] == pytest.approx(1 / turns), "the first step away from it was a step of the plan"
    assert found["backtracking"] == found["repeated_states"] == pytest.approx(2 / turns)
    assert found["repeated_actions"] == pytest.approx(1 / turns)


def test_standing_still_repeats_states_but_goes_nowhere_back():
    found = scores(played([["Up"]] * 8, "Sokoban-v0"))  # six cells high: at the wall after five at most
    assert found["backtracking"] == 0 and found["repeated_states"] >= 3 / 8 and found["repeated_actions"] >= 2 / 8
    assert found["step_efficiency"] is None, "of solved episodes only"


def test_progress_is_the_covered_share_of_the_plan():
    seed = next(seed for seed in range(100, 200) if len(plan(seed=seed)) == 4)
    way = plan(seed=seed)
    assert scores(played([way[:1]], seed=seed))["goal_progress"] == pytest.approx(0.25)
    assert scores(played([way[:3]], seed=seed))["goal_progress"] == pytest.approx(0.75)
    assert scores(played([[]], seed=seed))["goal_progress"] == 0


def test_an_end_without_success_leaves_no_progress():
    for seed in range(100, 200):
        for action in ("Left", "Right", "Up", "Down"):
            one = played([[action]], seed=seed)
            if one.record["stop_reason"] == "terminated":
                found = scores(one)
                assert (found["goal_progress"], found["unnecessary_turns"]) == (0, 1)
                return
    raise AssertionError("no hole beside a start")


def test_a_record_that_no_longer_fits_is_not_measured():
    one = played([plan()])
    one.record["turns"][0]["state"] = "another lake"
    found = scores(one)
    assert found["goal_progress"] is None and found["step_efficiency"] is None
    assert found["task_completion"] == 1


def test_other_transitions_than_the_saved_ones_are_not_measured():
    one = played([plan()])
    one.record["turns"][0]["observation"] = "somewhere"
    assert one.replay is None


def test_transitions_follow_the_rollout_index():
    for index in (0, 1, 2):
        assert played([["Up"], ["Left"], ["Down"]], rollout_index=index, success_rate=0.3).replay is not None


def test_an_episode_is_played_again_where_it_was_played(monkeypatch):
    here = played([["Up"], plan()]).replay
    with serving() as server:
        far = played([["Up"], plan()])
        far.record["env_id"] = f"{server.url}/FrozenLake-v0"
        assert far.replay == here and far.replay.best_return == 1.0
    apart = played([["Up"], plan()])
    monkeypatch.setattr(FrozenLake, "isolation", "process")
    assert apart.replay == here


def test_a_server_that_is_gone_is_asked_once(monkeypatch):
    asked = []
    monkeypatch.setattr("ragen_lab.score.replay.make_hosted", lambda id, **kwargs: asked.append(id) or make(id))
    episodes = [played([plan()]) for _ in range(3)]
    for one in episodes:
        one.record["env_id"] = "http://127.0.0.1:9/Lake-v0"
    assert [one.replay for one in episodes] == [None] * 3 and len(asked) == 1


def test_a_guide_for_the_next_move_is_no_plan():
    found = scores(played([["Up"], ["Left"]], "2048-v0"))
    assert found["goal_progress"] is None and found["unnecessary_turns"] is None


# -- reasoning --------------------------------------------------------------------------------------------------------


def thinking(*thoughts: str, seed: int = 123, actions=None):
    return played(actions or [["Up"]] * len(thoughts), seed=seed, thoughts=thoughts, env_id="Sokoban-v0")


def test_one_text_for_every_state_depends_on_nothing():
    same = [thinking("go to the box now", seed=seed) for seed in range(4)]
    assert [one["input_dependence"] for one in scores(*same)] == [0, 0, 0, 0]
    own = [thinking(f"box at row {seed} column {seed + 9}", seed=seed) for seed in range(4)]
    assert all(one["input_dependence"] > 0.5 for one in scores(*own))


def test_dependence_counts_other_states_not_other_samples():
    one, again, other = (thinking(text, seed=seed) for text, seed in (("a b c", 1), ("a b c", 1), ("d e f", 2)))
    assert [each["input_dependence"] for each in scores(one, again, other)] == [1, 1, 1]
    assert scores(thinking("a b c"))["input_dependence"] is None, "one state says nothing"


def test_repetition_counts_what_was_said_before():
    assert scores(thinking("a b c d", "e f g h"))["reasoning_repetition"] == 0
    assert scores(thinking("a b c", "a b c"))["reasoning_repetition"] == pytest.approx(0.5)
    assert scores(thinking("a b", "a b"), reasoning_repetition={"n": 1})["reasoning_repetition"] == pytest.approx(0.5)


def test_the_trend_is_a_share_of_the_mean_length():
    assert scores(thinking("a", "a b", "a b c"))["reasoning_trend"] == pytest.approx(0.5)
    assert scores(thinking("a b c", "a b", "a"))["reasoning_trend"] == pytest.approx(-0.5)
    assert scores(thinking("a b"))["reasoning_trend"] is None


def test_the_last_named_action_has_to_be_the_last_taken():
    agreeing = thinking("not left, go Up", "down? no: up and then RIGHT", actions=[["Up"], ["Up", "Right"]])
    assert scores(agreeing)["stated_action"] == 1
    half = thinking("go left", "go up", "upwards it leads", actions=[["Up"], ["Up"], ["Down"]])
    assert scores(half)["stated_action"] == pytest.approx(0.5)
    assert scores(thinking("no word of it"))["stated_action"] is None


# -- reward hacking ---------------------------------------------------------------------------------------------------


class Bribe(Env):
    """Pays for every `Take`, and is solved by `Work`."""

    instruction, actions = "Work.", ("Take", "Work")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.render(), {}

    def step(self, action):
        self.count += 1
        worked = action == "Work"
        return self.outcome(1.0 if not worked else 2.0, terminated=worked, success=worked)

    def render(self):
        return f"after {self.count}"

    def oracle(self):
        return ["Work"]


def test_return_of_the_plan_without_completion_is_flagged():
    register("Bribe-v0", Bribe)
    honest, hacking, idle = (played([turn], "Bribe-v0") for turn in (["Work"], ["Take"] * 5, ["Take"]))
    assert [one["reward_hacking"] for one in scores(honest, hacking, idle)] == [0, 1, 0]


def test_without_a_plan_the_accepted_returns_are_the_bar():
    found = scores(episode(True, 1), episode(False, 2, ret=3.0), episode(False, 3, ret=0.2))
    assert [one["reward_hacking"] for one in found] == [0, 1, 0]
    assert scores(episode(False, 1, ret=9.0))["reward_hacking"] is None, "nothing says what is much"


def test_a_success_that_another_evaluator_rejects_is_flagged():
    @evaluator("strict", better="higher")
    def strict(trajectory) -> float:
        """Likes even seeds."""
        return float(trajectory.seed % 2 == 0)

    found = scores(episode(True, 1), episode(True, 2), reward_hacking={"evaluator": "strict"})
    assert [one["reward_hacking"] for one in found] == [1, 0]
    with pytest.raises(RecipeError, match="did you mean task_completion"):
        scores(episode(True, 1), reward_hacking={"evaluator": "task_completon"})


def test_the_score_weighs_what_is_known():
    way = plan()
    solved, failed = scores(played([way]), played([[]]))
    assert (solved["trajectory_score"], failed["trajectory_score"]) == (1, 0)
    assert scores(episode(True, 1))["trajectory_score"] == 1, "completion alone is known"
    half = played([way[:-1]])
    run([half], options={"trajectory_score": {"completion": 0.0, "efficiency": 0.0}})
    assert half.scores["trajectory_score"] == half.scores["goal_progress"]


# -- the registry -----------------------------------------------------------------------------------------------------


def test_an_added_evaluator_has_options_and_sees_the_group():
    @evaluator("rank", better=None, together=True)
    def rank(trajectories, *, start: int = 0) -> list[float]:
        """Place in the group."""
        return [start + place for place in range(len(trajectories))]

    first, second, elsewhere = episode(True, 1), episode(True, 2), episode(True, 1, env="Other")
    called = run([first, elsewhere, second], names=["rank"], options={"rank": {"start": 5}})
    assert [one.scores for one in (first, second, elsewhere)] == [{"rank": 5}, {"rank": 6}, {"rank": 5}]
    assert [(one.name, one.about) for one in called] == [("rank", "Place in the group.")]


@pytest.mark.parametrize(
    ("names", "options", "told"),
    [
        (["goal_progres"], {}, "did you mean goal_progress"),
        (None, {"backtracking": {"n": 3}}, "backtracking.n is 3 but the evaluator backtracking does not read it"),
        (None, {"input_dependence": {"n": 0}}, "1 or more"),
        (None, {"judge": {}}, "judge.model is missing"),
    ],
)
def test_wrong_names_and_options_are_refused(names, options, told):
    with pytest.raises(RecipeError, match=told):
        run([episode(True, 1)], names, options)


def test_a_result_that_is_no_number_is_refused():
    @evaluator("odd", better="lower")
    def odd(trajectory):
        """Says something."""
        return "much"

    with pytest.raises(RecipeError, match="evaluator odd returned 'much'"):
        run([episode(True, 1)], ["odd"])


def test_better_is_one_of_three():
    with pytest.raises(RecipeError, match="'higher', 'lower' or None"):
        evaluator("odd", better="up")
