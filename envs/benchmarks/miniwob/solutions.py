"""Solutions of some tasks of MiniWoB++ by rule: from what a page shows to the actions that solve it."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["SOLUTIONS", "Element", "Move", "Solution"]

Element = dict[str, Any]
Move = tuple[str, dict[str, Any]]
"""The name of a tool and its arguments."""
Solution = Callable[[str, Sequence[Element]], list[Move]]


def _click(element: Element) -> Move:
    return "click", {"ref": element["ref"]}


def _write(element: Element, text: str) -> Move:
    return "write", {"ref": element["ref"], "text": text}


def _quoted(task: str) -> list[str]:
    return re.findall(r'"([^"]*)"', task)


def _of(elements: Sequence[Element], *tags: str, **wanted: Any) -> list[Element]:
    """The elements with one of the tags and with these values."""
    return [
        one for one in elements if one["tag"] in tags and all(one.get(key) == value for key, value in wanted.items())
    ]


def _submit(elements: Sequence[Element]) -> Move:
    return _click(next(one for one in _of(elements, "button") if one["text"].lower() in ("submit", "login")))


def _texts(elements: Sequence[Element]) -> list[Element]:
    return [one for one in _of(elements, "input") if one.get("type") in ("text", "password")]


def _named(task: str, elements: Sequence[Element]) -> list[Move]:
    """Click what has the quoted text, exactly."""
    [name] = _quoted(task)
    return [_click(next(one for one in elements if one["text"] == name))]


def _button(task: str, elements: Sequence[Element]) -> list[Move]:
    """Click the buttons that the task writes in capitals, in its order."""
    names = re.findall(r"\b(ONE|TWO)\b", task)
    return [_click(_of(elements, "button", text=name)[0]) for name in names] or [_click(_of(elements, "button")[0])]


def _dialog(task: str, elements: Sequence[Element]) -> list[Move]:
    [name] = _quoted(task)
    found = [
        one for one in _of(elements, "button") if (one.get("title") == "Close" if name == "x" else one["text"] == name)
    ]
    return [_click(found[0])]


def _boxes(task: str, elements: Sequence[Element]) -> list[Move]:
    """Tick the boxes whose labels are listed, and no others."""
    wanted = re.search(r"Select (.*?) and click Submit", task)[1].split(", ")
    moves, label = [], ""
    for one in elements:
        if one["tag"] == "label":
            label = one["text"]
        elif one.get("type") in ("checkbox", "radio") and (label in wanted) != one["checked"]:
            moves.append(_click(one))
    return [*moves, _submit(elements)]


def _tab(task: str, elements: Sequence[Element]) -> list[Move]:
    return [_click(_of(elements, "a", text=re.search(r"Tab #\d", task)[0])[0])]


def _focus(task: str, elements: Sequence[Element]) -> list[Move]:
    place = re.search(r"(\d)(st|nd|rd|th)", task)
    return [_click(_texts(elements)[int(place[1]) - 1 if place else 0])]


def _enter(task: str, elements: Sequence[Element]) -> list[Move]:
    """Write the quoted text into every text field."""
    text = _quoted(task)[0]
    text = text.upper() if "upper case" in task else text.lower() if "lower case" in task else text
    return [*(_write(one, text) for one in _texts(elements)), _submit(elements)]


def _login(task: str, elements: Sequence[Element]) -> list[Move]:
    fields = zip(_texts(elements), _quoted(task), strict=True)
    return [*(_write(one, text) for one, text in fields), _submit(elements)]


def _choose(task: str, elements: Sequence[Element]) -> list[Move]:
    [menu] = _of(elements, "select")
    option = re.search(r"Select (.*) from the list", task)[1]
    return [("choose", {"ref": menu["ref"], "option": option}), _submit(elements)]


def _widget(task: str, elements: Sequence[Element]) -> list[Move]:
    [kind] = _quoted(task)
    known = ("button", "textarea")
    if kind in known:
        return [_click(_of(elements, kind)[0])]
    return [
        _click(
            next(
                one
                for one in _of(elements, "input")
                if one.get("type") in ({"text": ("text", "input")}.get(kind, (kind,)))
            )
        )
    ]


def _color(task: str, elements: Sequence[Element]) -> list[Move]:
    color = re.search(r"the (\w+) colored", task)[1]
    return [_click(next(one for one in elements if f"background-color: {color};" in one.get("style", "")))]


def _shades(task: str, elements: Sequence[Element]) -> list[Move]:
    """Click the boxes in which the wanted channel is the largest."""
    place = ("red", "green", "blue").index(re.search(r"shades of (\w+)", task)[1])
    moves = []
    for one in elements:
        if found := re.search(r"rgb\((\d+), (\d+), (\d+)\)", one.get("style", "")):
            channels = [int(value) for value in found.groups()]
            if channels.index(max(channels)) == place:
                moves.append(_click(one))
    return [*moves, _submit(elements)]


_SIGNS = {"+": operator.add, "-": operator.sub, "x": operator.mul}


def _arithmetic(task: str, elements: Sequence[Element]) -> list[Move]:
    left, sign, right = re.match(r"(\d+) ([-+x]) (\d+)", _problem(elements)).groups()
    return [_write(_texts(elements)[0], str(_SIGNS[sign](int(left), int(right)))), _submit(elements)]


def _algebra(task: str, elements: Sequence[Element]) -> list[Move]:
    left, sign, right, result = re.match(r"(\w+) ([-+]) (\w+) = (-?\d+)", _problem(elements)).groups()
    if left == "x":
        x = int(result) - int(right) if sign == "+" else int(result) + int(right)
    else:
        x = int(result) - int(left) if sign == "+" else int(left) - int(result)
    return [_write(_texts(elements)[0], str(x)), _submit(elements)]


def _problem(elements: Sequence[Element]) -> str:
    return next(one["text"] for one in elements if one["id"] == "math-problem")


def _table(task: str, elements: Sequence[Element]) -> list[Move]:
    cells = [one["text"] for one in _of(elements, "td")]
    value = cells[cells.index(re.search(r"value of (.*) into", task)[1]) + 1]
    return [_write(_texts(elements)[0], value), _submit(elements)]


def _word(task: str, elements: Sequence[Element]) -> list[Move]:
    words = _of(elements, "p")[0]["text"].split()
    word = words[int(re.search(r"the (\d+)", task)[1]) - 1].strip(".,")
    return [_write(_texts(elements)[0], word), _submit(elements)]


def _copy(task: str, elements: Sequence[Element]) -> list[Move]:
    return [_write(_texts(elements)[0], _of(elements, "textarea")[0]["value"]), _submit(elements)]


def _section(task: str, elements: Sequence[Element]) -> list[Move]:
    header = _of(elements, "h3")[0]
    closed = [_click(header)] if "ui-accordion-header-collapsed" in header["kind"] else []
    return [*closed, _submit(elements)]


def _date(task: str, elements: Sequence[Element]) -> list[Move]:
    month, day, year = re.search(r"(\d+)/(\d+)/(\d+)", task).groups()
    return [_write(_of(elements, "input")[0], f"{year}-{month}-{day}"), _submit(elements)]


def _time(task: str, elements: Sequence[Element]) -> list[Move]:
    hour, minute, half = re.search(r"(\d+):(\d+) (AM|PM)", task).groups()
    text = f"{int(hour) % 12 + 12 * (half == 'PM'):02}:{minute}"
    return [_write(_of(elements, "input")[0], text), _submit(elements)]


def _grid(task: str, elements: Sequence[Element]) -> list[Move]:
    return [_click(next(one for one in elements if one["id"] == re.search(r"\(.*\)", task)[0]))]


def _parity(task: str, elements: Sequence[Element]) -> list[Move]:
    moves = []
    for place, one in enumerate(elements):
        if one["kind"] == "display-number":
            moves.append(_click(elements[place - 1] if int(one["text"]) % 2 else elements[place + 1]))
    return [*moves, _submit(elements)]


def _form(task: str, elements: Sequence[Element]) -> list[Move]:
    mark, place = (int(found) for found in re.findall(r"(\d)(?:st|nd|rd|th)", task))
    boxes = [one for one in elements if one.get("type") in ("radio", "checkbox")]
    return [_click(boxes[mark - 1]), _write(_texts(elements)[place - 1], _quoted(task)[0]), _submit(elements)]


SOLUTIONS: dict[str, Solution] = {
    "choose-list": _choose,
    "click-button": _named,
    "click-button-sequence": _button,
    "click-checkboxes": _boxes,
    "click-checkboxes-large": _boxes,
    "click-checkboxes-transfer": _boxes,
    "click-collapsible-nodelay": _section,
    "click-color": _color,
    "click-dialog": _dialog,
    "click-dialog-2": _dialog,
    "click-link": _named,
    "click-option": _boxes,
    "click-shades": _shades,
    "click-tab": _tab,
    "click-test": _button,
    "click-test-2": _button,
    "click-test-transfer": _button,
    "click-widget": _widget,
    "copy-paste": _copy,
    "enter-date": _date,
    "enter-password": _enter,
    "enter-text": _enter,
    "enter-text-2": _enter,
    "enter-text-dynamic": _enter,
    "enter-time": _time,
    "find-word": _word,
    "focus-text": _focus,
    "focus-text-2": _focus,
    "form-sequence-2": _form,
    "grid-coordinate": _grid,
    "login-user": _login,
    "odd-or-even": _parity,
    "read-table": _table,
    "simple-algebra": _algebra,
    "simple-arithmetic": _arithmetic,
    "unicode-test": _named,
}
"""Task -> its solution."""
