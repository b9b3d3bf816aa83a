"""The page in a real headless Chromium: clicks, filters, keys, injected scripts, phone width, live news.

`make test-pages` installs Chromium where it is missing and runs these.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from operator import mul
from pathlib import Path

import pytest
from ragen_lab.report import opened as opened_runs
from ragen_lab.report import read_run, render
from ragen_lab.report.serve import Pages, server
from small_runs import small_evaluation, small_run

pytestmark = pytest.mark.slow
api = pytest.importorskip("playwright.sync_api", reason="make test-pages installs Playwright")
expect = api.expect
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)  # None: Playwright's own
ATTACK = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'></script>"
    "\u202egnp.exe\u202c\u200b\U000e0041 javascript:window.hacked=1"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with api.sync_playwright() as driver:
        try:
            found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        except api.Error as error:
            pytest.skip(f"no Chromium, which make test-pages installs: {error.message.splitlines()[0]}")
        yield found
        found.close()


@pytest.fixture
def opened(browser: object, tmp_path: Path) -> Iterator[Callable]:
    """(folders, **context options) -> the opened page; what goes wrong on it fails the test."""
    wrong: list[str] = []
    contexts = []

    def open_(*folders: Path, page: bytes | None = None, at: str = "", **options: object):
        options = {"viewport": {"width": 1280, "height": 900}, **options}
        contexts.append(browser.new_context(**options))
        tab = contexts[-1].new_page()
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("dialog", lambda dialog: (wrong.append("a dialog"), dialog.dismiss()))
        tab.on("request", lambda request: None if request.url.startswith("file:") else wrong.append(request.url))
        file = tmp_path / "page.html"
        file.write_bytes(page or render(opened_runs(folders)))
        tab.goto(f"{file.as_uri()}#{at}" if at else file.as_uri())
        return tab

    open_.wrong = wrong
    yield open_
    for context in contexts:
        context.close()
    assert wrong == []


def shown(tab: object) -> list[str]:
    """Keys of the trajectories that are open."""
    return [one.get_attribute("data-key") for one in tab.locator(".episode").all()]


def test_a_click_on_a_cell_opens_its_trajectory(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run").path)
    assert shown(tab) == ["0/train/4/Lake-v0/109/0"]
    tab.locator('.cell[data-key="0/train/4/Lake-v0/110/2"]').click()
    assert shown(tab) == ["0/train/4/Lake-v0/110/2"]
    text = tab.locator(".episode").inner_text()
    where = "step 4 · train · seed 110 · sample 2"
    for part in ("Lake-v0", where, "thought 2 of sample 2 at step 4", "state 3 of seed 110"):
        assert part in text
    assert tab.locator(".turn").count() == 3 and tab.locator(".action.skipped").count() == 2
    assert tab.evaluate("decodeURIComponent(location.hash)").startswith("#t=0/train/4/Lake-v0/110/2")


def test_the_address_opens_its_trajectory(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run").path)
    tab.goto(tab.url.partition("#")[0] + "#t=0/val/2/Lake-v0/3/0")
    expect(tab.locator(".episode")).to_have_attribute("data-key", "0/val/2/Lake-v0/3/0")
    assert (tab.locator("#split").input_value(), tab.locator("#step").input_value()) == ("val", "2")


def test_filters_narrow_the_list_and_clear_widens_it(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run").path)
    assert tab.locator(".cell").count() == 12
    tab.locator("#outcome").select_option("solved")
    assert tab.locator(".cell").count() == tab.locator(".cell.solved").count() == 4
    tab.locator("#step").select_option("")
    assert tab.locator("#found").inner_text().startswith("16 trajectories in")
    assert tab.locator("#stop option").all_inner_texts() == ["all", "solved (16)"]
    tab.locator("#search").fill("no such word")
    expect(tab.locator("#list")).to_contain_text("No trajectory is like this.")
    tab.locator("button[type=reset]").click()
    expect(tab.locator("#found")).to_contain_text("66 trajectories in")


def test_a_search_finds_and_marks_words(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run").path)
    tab.keyboard.press("/")
    tab.keyboard.type("THOUGHT 2 of sample 3")
    expect(tab.locator(".cell")).to_have_count(3)
    assert tab.locator("mark").first.inner_text() == "thought 2 of sample 3"
    tab.keyboard.press("Escape")
    assert tab.evaluate("document.activeElement.id") != "search"


def test_arrows_brackets_and_letters_are_keys(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run").path)
    tab.evaluate("document.getElementById('trajectories').scrollIntoView({behavior: 'instant'})")
    steps = [
        ("ArrowRight", "0/train/4/Lake-v0/109/1"),
        ("ArrowDown", "0/train/4/Lake-v0/110/0"),
        ("ArrowLeft", "0/train/4/Lake-v0/109/3"),
        ("ArrowUp", "0/train/4/Lake-v0/109/0"),
        ("[", "0/train/3/Lake-v0/106/0"),
        ("]", "0/train/4/Lake-v0/109/0"),
    ]
    for key, expected in steps:
        tab.keyboard.press(key)
        assert shown(tab) == [expected], key
    tab.keyboard.press("c")
    assert shown(tab) == ["0/train/4/Lake-v0/109/0", "0/train/4/Lake-v0/109/1"]
    tab.keyboard.press("c")
    assert len(shown(tab)) == 1
    tab.keyboard.press("?")
    assert tab.locator("#help").is_visible()
    tab.keyboard.press("Escape")
    assert not tab.locator("#help").is_visible()


def test_a_state_is_compared_at_two_steps(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run").path)
    tab.locator("#split").select_option("val")
    tab.locator("#step").select_option("4")
    tab.locator(".cell").nth(2).click()
    tab.locator(".compare").select_option("0/val/0/Lake-v0/2/0")
    assert shown(tab) == ["0/val/4/Lake-v0/2/0", "0/val/0/Lake-v0/2/0"]
    left, right = (one.bounding_box() for one in tab.locator(".episode").all())
    assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]
    assert tab.locator(".turn.parts b").all_inner_texts() == ["Turn 1", "Turn 1"]
    assert tab.locator(".apart").all_inner_texts() == ["4", "0"]  # the step is the one word that differs
    tab.get_by_role("button", name="Stop comparing").click()
    assert len(shown(tab)) == 1


def test_the_first_difference_in_a_group_is_marked(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run").path)
    tab.locator(".compare").select_option("0/train/4/Lake-v0/109/1")
    assert tab.locator(".turn.parts b").all_inner_texts() == ["Turn 1", "Turn 1"]


def test_tokens_are_shaded_by_what_is_chosen(tmp_path: Path, opened: Callable) -> None:
    folder = small_run(tmp_path / "run", said=lambda *_: "a 👩 ??", tokens=True)
    tab = opened(folder.path)
    tab.locator(".cell").nth(3).click()
    first = tab.locator("pre.reasoning").first
    assert first.inner_text().startswith("<think>a 👩 ??</think><answer>")
    token = first.locator(".token").nth(3)  # the fourth five characters, of which one has two UTF-16 units
    assert token.inner_text() == "answe"
    assert token.get_attribute("title") == "log-prob −1.5, advantage 2, response mask 1"
    colours = {}
    for shade in ("log_probs", "advantages", "mask", "none"):
        tab.locator(".shade").select_option(shade)
        colours[shade] = [one.evaluate("node => node.style.background") for one in first.locator(".token").all()]
    assert len(set(colours["log_probs"])) == 4 and len(set(colours["advantages"])) == 1
    assert colours["log_probs"][3] != colours["advantages"][3] and set(colours["none"]) == {""}
    tab.locator("summary", has_text="Task, as the model read it").click()
    assert "Walk to the goal." in tab.locator(".episode").inner_text()


def test_a_curve_shows_values_and_leads_to_its_step(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run", steps=10).path)
    chart = tab.locator(".panel svg").first
    box = chart.bounding_box()
    at = {"x": box["width"] * (42 + (350 - 42) * 0.4) / 360, "y": 90}
    chart.hover(position=at)
    tip = tab.locator(".tip").inner_text()
    assert tip.startswith("step 4") and "held-out" in tip and "%" in tip
    chart.click(position=at)
    assert tab.locator("#step").input_value() == "4"


def test_a_curve_is_read_by_keys(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run", steps=10).path)
    tab.locator(".panel svg").first.focus()
    for key, step in (("Home", "step 0"), ("ArrowRight", "step 1"), ("End", "step 10"), ("ArrowLeft", "step 9")):
        tab.keyboard.press(key)
        assert tab.locator(".tip").inner_text().startswith(step), key
    tab.keyboard.press("Escape")
    assert tab.locator(".tip").count() == 0
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert tab.locator("#step").input_value() == "1"


def test_every_metric_is_found_and_own_ones_come_first(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run", steps=10).path)
    logged = {name for row in read_run(tmp_path / "run").rows for name in row} - {"step", "time"}
    expect(tab.locator("#plotted")).to_have_text(f"9 of {len(logged)} metrics")
    tab.locator("#metric").fill("actor NORM")
    expect(tab.locator(".panel figcaption")).to_have_text(["actor/grad_norm"])
    tab.locator("#metric").fill("")
    tab.locator("#all-metrics").click()
    expect(tab.locator(".panel").first).to_contain_text("val-env/")
    tab.locator(".panels > button").click()
    expect(tab.locator(".panel")).to_have_count(min(96, len(logged)))


def test_curves_over_tokens_and_smoothed(tmp_path: Path, opened: Callable) -> None:
    folder = small_run(tmp_path / "run", steps=10, spike=5)
    tab = opened(folder.path)
    tab.locator("#metric").fill("actor/grad_norm")
    expect(tab.locator(".panel")).to_have_count(1)
    tab.locator("#axis").select_option("tokens")
    expect(tab.locator(".panel svg")).to_contain_text("10k")
    moved = "node => { node.value = '0.5'; node.dispatchEvent(new Event('input', {bubbles: true})); }"
    tab.locator("#smooth").evaluate(moved)
    expect(tab.locator("#smooth")).to_have_value("0.5")
    expect(tab).to_have_url(re.compile("smooth=0.5"))
    tab.locator(".panel svg").focus()
    tab.keyboard.press("End")
    values = [value for _, value in read_run(folder.path).series("actor/grad_norm")]
    weights = [0.5 ** (len(values) - at) for at in range(len(values))]
    mean = sum(map(mul, weights, values)) / sum(weights)
    assert tab.locator(".tip").inner_text().split() == ["step", "10,", "10k", "tokens", f"{float(f'{mean:.3g}'):g}"]


def test_repeated_seeds_are_one_line_with_a_band(tmp_path: Path, opened: Callable) -> None:
    runs = [small_run(tmp_path / f"a-seed{seed}", steps=6 + seed).path for seed in (1, 2)]
    tab = opened(*runs)
    entropy = tab.locator(".panel").nth(3)
    expect(entropy.locator("figcaption")).to_have_text("Entropy nats a token")
    assert entropy.locator(".line").count() == 3 and entropy.locator(".line.thin").count() == 2
    assert entropy.locator("polygon").count() == 1
    assert "mean of 2 runs" in tab.locator(".legend").first.inner_text()
    entropy.locator("svg").focus()
    tab.keyboard.press("Home")
    first = [read_run(one).series("actor/entropy")[0][1] for one in runs]
    assert f"mean, training {sum(first) / 2:.3g}" in tab.locator(".tip").inner_text()


def test_the_list_is_sorted_and_filtered(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run").path)
    tab.locator("#sort").select_option("-return")
    assert tab.locator(".cell").first.get_attribute("class").split()[1] == "solved"
    tab.locator("#sort").select_option("return")
    assert tab.locator(".cell").first.get_attribute("class").split()[1] == "failed"
    tab.locator("#only").select_option("kept")
    expect(tab.locator(".cell.dropped")).to_have_count(0)
    kept = tab.locator(".cell").count()
    tab.locator("#only").select_option("dropped")
    assert tab.locator(".cell").count() == tab.locator(".cell.dropped").count() == 12 - kept
    tab.locator("#only").select_option("mixed")
    assert tab.locator(".group").count() == 3  # every group of a small run has both outcomes


def test_the_address_keeps_what_is_looked_at(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run").path)
    tab.locator("#step").select_option("3")
    tab.locator("#outcome").select_option("failed")
    tab.locator("#sort").select_option("turns")
    tab.locator("#search").fill("sample 1")
    expect(tab.locator(".cell")).to_have_count(2)
    tab.locator(".compare").select_option(index=1)
    tab.locator("#metric").fill("entropy")
    expect(tab).to_have_url(re.compile("metric=entropy"))
    names = ("step", "outcome", "sort", "search", "metric")
    looked, values = shown(tab), [tab.locator(f"#{name}").input_value() for name in names]
    again = opened(page=(tmp_path / "page.html").read_bytes(), at=tab.url.partition("#")[2])
    assert shown(again) == looked and len(looked) == 2
    assert [again.locator(f"#{name}").input_value() for name in names] == values


def test_two_policies_of_a_state_stand_side_by_side(tmp_path: Path, opened: Callable) -> None:
    tab = opened(page=render(opened_runs([small_evaluation(tmp_path / "eval")])))
    assert shown(tab) == ["0/val/0/Lake-v0/0/0", "1/val/0/Lake-v0/0/0"]
    assert tab.locator(".turn.parts").count() == 2
    tab.evaluate("document.getElementById('trajectories').scrollIntoView({behavior: 'instant'})")
    tab.keyboard.press("ArrowRight")
    assert shown(tab) == ["0/val/0/Lake-v0/1/0", "1/val/0/Lake-v0/1/0"]
    assert not tab.locator("#curves").is_visible() and "Played episodes" in tab.locator("#result").inner_text()


def test_advantages_have_one_scale_on_the_page(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run", tokens=True).path)  # the advantage of sample n is n - 1
    colours = []
    for sample in range(4):
        tab.locator(".cell").nth(sample).click()
        tab.locator(".shade").select_option("advantages")
        colours.append(tab.locator(".token").first.evaluate("node => node.style.background"))
    assert len(set(colours)) == 4
    assert tab.locator(".scale").inner_text() == "−22"


def test_calls_of_tools_are_folded(tmp_path: Path, opened: Callable) -> None:
    folder = small_run(tmp_path / "run")
    file = folder.trajectories("train") / "000004.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    call = {"name": "search", "arguments": {"query": ATTACK}, "result": "seven hits", "error": None, "seconds": 0.25}
    calls = [call, {"name": "buy", "error": "no money"}]
    lines[0]["turns"][0]["calls"] = [json.dumps(one) for one in calls]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tab = opened(folder.path)
    tab.locator(".cell").first.click()
    calls = tab.locator("details.call")
    assert [" ".join(one.inner_text().split()) for one in calls.all()] == ["search 0.25 s", "buyno money"]
    calls.first.locator("summary").click()
    assert "seven hits" in calls.first.inner_text() and tab.evaluate("window.hacked === undefined")


def test_what_a_model_wrote_is_text_and_is_never_run(tmp_path: Path, opened: Callable) -> None:
    folder = small_run(tmp_path / "run", said=lambda *_: ATTACK)
    file = folder.trajectories("train") / "000004.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line |= {"env": ATTACK, "stop_reason": ATTACK, "error": ATTACK}
        line["turns"][0]["actions"] = line["turns"][0]["executed"] = [ATTACK]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tab = opened(folder.path)
    tab.locator(".cell").nth(1).click()
    tab.locator("details summary").first.click()
    tab.keyboard.press("c")
    tab.locator("#search").fill("<script>")
    expect(tab.locator("mark").first).to_be_visible()
    assert tab.evaluate("window.hacked === undefined")
    assert tab.locator("#viewer img, #viewer script, #viewer a").count() == 0
    reasoning = tab.locator(".reasoning").first.inner_text()
    assert "<script>window.hacked = 1</script>" in reasoning and "\\u202egnp.exe\\u202c\\u200b\\U000e0041" in reasoning
    assert "\u202e" not in tab.locator("body").inner_text()


def test_the_policy_stops_a_script_that_got_in(tmp_path: Path, opened: Callable) -> None:
    page = render([read_run(small_run(tmp_path / "run").path)])
    page = page.replace(b"<main>", b"<main><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>")
    tab = opened(page=page)
    assert tab.evaluate("window.hacked === undefined") and tab.locator(".cell").count() == 12
    assert len(opened.wrong) == 3 and all("Content Security Policy" in one for one in opened.wrong)
    opened.wrong.clear()


@pytest.mark.parametrize("width", [320, 375, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_width_scrolls_sideways(tmp_path: Path, opened: Callable, width: int, scheme: str) -> None:
    folders = [small_run(tmp_path / name, said=lambda *_: "wide" * 500).path for name in ("run", "other" * 12)]
    for several in (folders[:1], folders):
        tab = opened(*several, viewport={"width": width, "height": 800}, color_scheme=scheme)
        tab.locator(".compare").select_option(index=1)
        assert tab.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_have_enough_contrast(tmp_path: Path, opened: Callable, scheme: str) -> None:
    tab = opened(small_run(tmp_path / "run", steps=60, spike=40).path, color_scheme=scheme)
    found = tab.evaluate(CONTRAST)
    assert len(found) > 100
    assert [one for one in found if one[0] < 4.5] == []


def test_without_javascript_the_result_is_readable(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run").path, java_script_enabled=False)
    text = tab.locator("body").inner_text()
    for part in ("Held-out success", "Gradient norm", "Where the time went", "Trajectories need JavaScript"):
        assert part in text
    assert not tab.locator("#viewer").is_visible() and '{"' not in text


def test_paper_has_result_and_curves_in_dark_ink(tmp_path: Path, opened: Callable) -> None:
    tab = opened(small_run(tmp_path / "run").path, color_scheme="dark")
    tab.emulate_media(media="print")
    assert tab.locator(".panel").first.is_visible() and not tab.locator("#viewer").is_visible()
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert [one for one in tab.evaluate(CONTRAST) if one[0] < 4.5] == []


def test_a_served_page_follows_the_run_and_keeps_its_place(tmp_path: Path, browser: object) -> None:
    folder = small_run(tmp_path, steps=2)
    found = server(Pages(tmp_path, 2000), "127.0.0.1", 0)
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        tab = browser.new_page()
        tab.goto(f"http://127.0.0.1:{found.server_port}/")
        tab.locator(".cell").nth(5).click()
        before = shown(tab)
        folder.write_trajectories("train", 3, [])
        folder.log(3, {"train/success": 0.5})
        expect(tab.locator("#result")).to_contain_text("3of 8", timeout=20_000)
        assert shown(tab) == before
        tab.locator(".panel svg").first.hover()
        assert tab.locator(".tip").count() == 1
        tab.close()
    finally:
        found.shutdown()
        found.server_close()
        thread.join()


CONTRAST = """() => {
  const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return { r, g, b, a }; };
  const light = ({ r, g, b }) => {
    const line = (v) => (v <= 10 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    const [x, y, z] = [r, g, b].map(line);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.a === 1) return colour;
    }
    return { r: 255, g: 255, b: 255 };
  };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest('svg, .dropped, option, script')) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.className, node.textContent.slice(0, 30)]);
  }
  return found;
}"""
