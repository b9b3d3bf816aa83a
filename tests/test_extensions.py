"""Registries that plugins add to, plugins from files and packages, and options read from signatures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import pytest
from annotated_types import Ge, Gt, Interval, Le, Lt, MultipleOf
from hypothesis import given
from hypothesis import strategies as st

from ragen_verl import extensions
from ragen_verl.errors import RecipeError
from ragen_verl.extensions import Registry, _modules_of, check_options, options_of, use_files
from ragen_verl.values import Accepts, checked

if TYPE_CHECKING:
    from nowhere import Batch

SHARE = Accepts(lambda value: 0 < value <= 1, "a number above 0 and at most 1")


def function(
    batch: Batch,
    *,
    share: Annotated[float, SHARE] = 0.5,
    part: tuple[float, ...] = (0.0, 1.0),
    mass: Literal["linear", "softmax"] = "linear",
    count: int = 1,
    limit: int | None = None,
    pair: tuple[float, float] = (0.0, 1.0),
    anything=None,
):
    """Options of every kind."""


def needy(batch, *, count: Annotated[int, Accepts(lambda value: value > 0, "a whole number of 1 or more")]):
    """An option without a default."""


def check(given: dict, of=function) -> dict:
    return check_options(of, given, "ragen.filter", "filter strategy mine")


def test_options_are_the_keyword_only_parameters() -> None:
    assert list(options_of(function)) == ["share", "part", "mass", "count", "limit", "pair", "anything"]
    assert options_of(function)["count"].default == 1


def test_values_are_converted_and_null_is_left_out() -> None:
    found = check({"share": 1, "part": [0, 25], "mass": "softmax", "count": None, "anything": {"a": 1}})
    assert found == {"share": 1.0, "part": (0.0, 25.0), "mass": "softmax", "anything": {"a": 1}}
    assert isinstance(found["share"], float) and isinstance(found["part"][0], float)
    assert check({"count": 2}, needy) == {"count": 2}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"share": 2}, "ragen.filter.share is 2.0 but has to be a number above 0 and at most 1 or null (filter"),
        ({"share": "half"}, "'half' but has to be a number above 0"),
        ({"share": True}, "True but has to be a number above 0"),
        ({"count": 1.5}, "a whole number or null"),
        ({"count": True}, "a whole number or null"),
        ({"limit": 0.5}, "a whole number or null (filter"),
        ({"part": 3}, "a list or null"),
        ({"part": [0, "a"]}, "ragen.filter.part[1] is 'a' but has to be a number"),
        ({"pair": [0.0]}, "has to be a list of 2 or null"),
        ({"mass": "log"}, "one of linear, softmax or null"),
        ({"shar": 1}, "ragen.filter.shar is 1 but filter strategy mine does not read it: did you mean share?"),
    ],
)
def test_option_of_another_type_or_outside_its_bounds_is_refused(given: dict, words: str) -> None:
    with pytest.raises(RecipeError) as refusal:
        check(given)
    assert words in str(refusal.value)


def test_option_without_a_default_is_needed() -> None:
    with pytest.raises(RecipeError, match=r"ragen\.filter\.count is missing: filter strategy mine needs it"):
        check({"count": None}, needy)
    with pytest.raises(RecipeError, match=r"a whole number of 1 or more \(filter strategy mine\)"):
        check({"count": 0}, needy)


def test_annotation_for_type_checkers_alone_is_no_option() -> None:
    def strategy(scores, *, batch: Batch = None):
        """An option whose type does not exist at run time."""

    with pytest.raises(RecipeError, match=r"strategy cannot be read: name 'Batch' is not defined"):
        options_of(strategy)


def test_options_of_a_class_are_those_of_its_constructor() -> None:
    class Window:
        def __init__(self, *, turns: int = 3) -> None:
            self.turns = turns

    assert check_options(Window, {"turns": 2}, "ragen.rollout", "context window") == {"turns": 2}


BOUNDS = [
    (int, [Ge(1)], "a whole number of 1 or more", lambda x: x >= 1),
    (float, [Gt(0)], "a number above 0", lambda x: x > 0),
    (float, [Interval(gt=0, le=1)], "a number above 0 and at most 1", lambda x: 0 < x <= 1),
    (float, [Interval(ge=0, le=1)], "a number from 0 to 1", lambda x: 0 <= x <= 1),
    (float, [Ge(0), Lt(1)], "a number of 0 or more and below 1", lambda x: 0 <= x < 1),
    (int, [Le(3)], "a whole number at most 3", lambda x: x <= 3),
]


@pytest.mark.parametrize(("kind", "notes", "words", "accepts"), BOUNDS, ids=[words for _, _, words, _ in BOUNDS])
@given(value=st.integers(-1, 4) | st.sampled_from([0.5, 1.0, -0.5]))
def test_bounds_of_annotated_types_are_checked(kind, notes, words, accepts, value):
    hint = Annotated[(kind, *notes)]
    value = kind(value)
    if accepts(value):
        assert checked(hint, value, "key") == value
    else:
        with pytest.raises(RecipeError, match=f"^key is {value} but has to be {words}\\.$"):
            checked(hint, value, "key")


def test_a_note_that_is_no_bound_is_refused():
    with pytest.raises(RecipeError, match=r"MultipleOf.* is no bound: use Gt, Ge, Lt, Le or Interval, or Accepts"):
        checked(Annotated[int, MultipleOf(2)], 4, "key")


# -- registries -------------------------------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins of this test alone."""
    monkeypatch.setenv(extensions.FILES, "")
    monkeypatch.setattr(extensions, "_loaded", set())
    monkeypatch.setattr(extensions, "_failed", {})
    monkeypatch.setattr(extensions, "_entry_points", lambda: ())


REGISTRY = """
import test_extensions_registry
test_extensions_registry.THINGS.add({name!r}, lambda: {name!r})
"""


@pytest.fixture
def things(environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Registry:
    """A registry that files can import and add to."""
    (tmp_path / "test_extensions_registry.py").write_text(
        "from ragen_verl.extensions import Registry\nTHINGS = Registry('thing')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "test_extensions_registry", raising=False)
    import test_extensions_registry

    return test_extensions_registry.THINGS


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_file_adds_its_names_here_and_in_started_processes(things: Registry, tmp_path: Path) -> None:
    file = written(tmp_path, "mine.py", REGISTRY.format(name="mine"))
    assert use_files([file, file]) == [file, file]
    assert things.find("mine", "ragen.thing")() == "mine"
    code = "import test_extensions_registry; print(list(test_extensions_registry.THINGS))"
    started = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    assert started.stdout == "['mine']\n", started.stderr


def test_relative_file_counts_from_the_working_folder(
    things: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, "near.py", REGISTRY.format(name="near"))
    monkeypatch.chdir(tmp_path)
    assert use_files(["near.py"]) == [file] and "near" in things


def test_file_that_is_not_there_is_refused(environment: None) -> None:
    with pytest.raises(RecipeError, match=r"ragen\.plugins names nowhere\.py, and there is no file /.*: correct"):
        use_files(["nowhere.py"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'."),
        ("def f(:", "SyntaxError: "),
        ("raise SystemExit(3)", "SystemExit: 3."),
    ],
)
def test_file_that_cannot_be_imported_is_refused(environment: None, tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RecipeError) as refusal:
        use_files([written(tmp_path, "broken.py", text)])
    assert f"{tmp_path}/broken.py, which cannot be imported: {words}" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_broken_plugin_leaves_other_names_and_is_mentioned(
    things: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    files = [written(tmp_path, "bad.py", "1 / 0"), written(tmp_path, "good.py", REGISTRY.format(name="good"))]
    monkeypatch.setenv(extensions.FILES, os.pathsep.join(files))
    assert list(things) == ["good"]
    with pytest.raises(RecipeError) as refusal:
        things.find("goood", "ragen.thing")
    assert str(refusal.value) == (
        "ragen.thing is 'goood', which is no thing: did you mean good? "
        f"The plugin {files[0]} could not be imported: ZeroDivisionError: division by zero."
    )
    assert capsys.readouterr().err.count("bad.py") == 1


def test_a_name_is_given_once(environment: None) -> None:
    registry = Registry("thing")
    registry.add("one", function)
    registry.add("one", function)
    with pytest.raises(RecipeError, match=r"The thing 'one' exists already \(.*function\): choose another name"):
        registry.add("one", needy)


def test_modules_of_the_home_are_imported_when_asked(environment: None, things: Registry, tmp_path: Path) -> None:
    (tmp_path / "things_at_home").mkdir()
    (tmp_path / "things_at_home" / "__init__.py").touch()
    written(tmp_path / "things_at_home", "one.py", REGISTRY.format(name="built in"))
    written(tmp_path / "things_at_home", "two.py", REGISTRY.format(name="another"))
    things._modules = _modules_of("things_at_home")
    assert "things_at_home" not in sys.modules
    assert "built in" in things and "things_at_home.two" not in sys.modules
    assert list(things) == ["built in", "another"]
