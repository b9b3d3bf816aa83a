"""Comparison of answers: numbers by value, texts by their words, choices by letter or wording.

A model wrote the answers. So nothing is evaluated, every pattern takes linear time, and the length is limited.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence
from fractions import Fraction

__all__ = ["LONGEST", "chosen", "number", "same_mathematics", "same_number", "same_text"]

LONGEST = 10_000
"""The greatest number of characters of an answer; a longer one is not read."""

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]{1,40})(?:\.[0-9]{1,40})?|\.[0-9]{1,40}"
_RATIO = rf"(?:\\[dt]?frac\{{(?P<top>-?(?:{_DIGITS}))\}}\{{(?P<bottom>{_DIGITS})\}})"
_NUMBER = re.compile(
    rf"(?<![0-9.,])(?P<sign>-?)(?P<currency>[$€£] ?)?(?:{_RATIO}|(?P<first>{_DIGITS})(?: ?/ ?(?P<second>{_DIGITS}))?)"
    r"(?P<percent> ?%)?(?![0-9])"
)
# Text before a number that makes it part of an expression, a bound or a word: 10^590, 1e590, x590, 2*590, 2 + 590,
# log 590, at least 590; but not the marks of bold text in **590**.
_OPERATOR_BEFORE = re.compile(
    r"(?:[^\W\d]|[\^_√∛∜±∓≤≥≠∑∏]\s?|\\(?:times|cdot|div|pm|mp)\s?"
    r"|[\d)\]}]\s?(?:[-+/x×·⋅÷]|\*{1,2}|//|\+/?-)\s?|\w(?:\*{1,2}|[+/])|\w \*{1,2} |\w \+ "
    r"|(?<![^\W\d])[e-z] - |\d[:)\]]"
    r"|\b(?:log|ln|lg|exp|sqrt|sin|cos|tan)(?:_\{?\w+\}?)?\s"
    r"|(?:^|\s)[<>]=?\s?|!=\s?|n['’]t\s"
    r"|\b(?:not|never|minus|negative|plus|times|by|over|above|below|under|mod|base|choose|twice|double|triple|at least"
    r"|at most|(?:more|less|fewer|greater|smaller|larger|higher|lower) than"
    r"|(?:half|third|quarter|square|cube|root|per ?cent|power|log|logarithm|multiple|factorial) of|%\s?of)\s)$",
    re.IGNORECASE,
)
_BEFORE_BRACKET = re.compile(r"[\d)\]}\-]$|[\d\-] $")  # 2(590), -(590), 2 (590)
_MIXED = re.compile(r"\d $")  # 590 1/2 and 590 000
# Text after a number that makes it part of an expression or of another number: 590^2, 590 * x, 590/x, 590!, 590k, 5,90.
_OPERATOR_AFTER = re.compile(
    r"!|[,.][0-9]|\s?(?:\^|\*{1,2}[\w(]| \*{1,2} [\w(])|\s?[+/×·⋅÷]\s?(?:[A-Za-z](?![A-Za-z])|\()"
    r"|-(?:[A-Za-z](?![A-Za-z])|\()| - [e-hj-zE-HJ-Z](?![A-Za-z])|\s?\\(?:times|cdot|div|pm|mp|pi|sqrt|log|ln)(?![a-z])"
    r"|(?:[nije]|\s?(?:[xyzπ√]|pi))(?![A-Za-z])|(?:K|M|B|T|mn)(?![A-Za-z])|[\s{]*(?:k|bn|[Mm]io|[Mm]rd|mln)(?![A-Za-z])"
    r"|[\s{]*(?:hundred|thousand|million|billion|trillion|dozen|lakh|crore|squared|cubed|factorial)s?(?![A-Za-z])"
    r"|\s(?:(?:tenth|hundredth|thousandth|millionth)s?|and (?:an? |one )?(?:half|third|quarter|\w+th))(?![A-Za-z])"
)
_MINUS = re.compile(r"(?<![0-9)\]}] )\b(?:minus|negative)\s+(?=[0-9.$€£])", re.IGNORECASE)
_SPACED_MINUS = re.compile(r"(?<![0-9)\]}])(?<![0-9)\]}] )−[^\S\n]+(?=[\d.$])|(?<==)[^\S\n]*-[^\S\n]+(?=[\d.$])")
_MINUS_CURRENCY = re.compile(r"(?<![\w)}])-\$\s?(?=[\d.])")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹]|(?<=[0-9)])[₀₁₂₃₄₅₆₇₈₉]")
_VULGAR = re.compile("(?<=[0-9])(?=[¼½¾⅐-⅞])")
_UNIT = re.compile(r"(?<=[0-9}])\s+\{?\s*[A-Za-z][A-Za-z ]*\}?$")
_MARK = re.compile(r"####|answer is:?|\\boxed\s*\{", re.IGNORECASE)
_LATEX = re.compile(r"\\(?:left|right|displaystyle|text|textbf|mathbf|mathrm|mbox|[!,;: ])|\\\(|\\\)|\$")


def _plain(text: str) -> str:
    """Return `text` in compatibility form, with typographic signs as ASCII and LaTeX decorations removed."""
    text = _SPACED_MINUS.sub("-", _VULGAR.sub(" ", _RAISED.sub(r"^\g<0>", text)))
    text = unicodedata.normalize("NFKC", text).replace("−", "-").replace("–", "-").replace("⁄", "/")
    text = _MINUS_CURRENCY.sub("-", text.replace("\\$", "$"))
    text = text.replace("\\%", "%").replace("{,}", ",").replace("\\dfrac", "\\frac")
    return _LATEX.sub(" ", text.replace("\\tfrac", "\\frac")).strip()


def _final(text: str) -> str:
    """Return what follows the last mark of a final answer (`\\boxed{`, "####", "answer is"), or all of `text`."""
    marks = list(_MARK.finditer(text))
    if not marks:
        return text
    rest = text[marks[-1].end() :]
    if not marks[-1].group().endswith("{"):
        return rest
    depth = 1
    for place, sign in enumerate(rest):
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return rest[:place]
    return rest


def number(text: str, whole: bool = False) -> Fraction | None:
    """Return the number that `text` states, exactly, or None.

    It reads signs, thousands commas, decimals, a/b, \\frac{a}{b} and currency; a percent sign is a unit, not a factor,
    and so is any other word or sign behind the number; `~`, "about" and the like are left out. Of several numbers the
    last counts, and of `\\boxed{}` its content. If the last is a part of an expression or of a word (10^590, 1e590,
    x590, 2 * 590, 590 - x, 590!, -(590)), a bound (at least 590) or a part of another number (590k, 590 000, 5,90), the
    result is None. Digits are ASCII, or compatibility forms of it (５９０); words (five hundred) are not read.

    Args:
        text: an answer.
        whole: whether the number must be the whole text, except for a unit in words after it.
    """
    if len(text) > LONGEST:
        return None
    text = _final(_plain(text)).strip()
    text = _MINUS.sub("-", re.sub(r"(?<=[0-9}]) ?\.$", "", text))
    if whole:
        match = _NUMBER.fullmatch(_UNIT.sub("", text))
        return _value(match) if match and not _OPERATOR_AFTER.match(text, match.end()) else None
    last = None
    for match in _NUMBER.finditer(text):
        last = match
    return _value(last) if last is not None and _stands_alone(text, last) else None


def _stands_alone(text: str, match: re.Match) -> bool:
    """Tell whether a number in `text` is no part of an expression, of a word or of a larger number."""
    before = text[: match.start()].rstrip("([{")
    bracketed = len(before) < match.start()
    if _OPERATOR_BEFORE.search(before[-40:]) or (bracketed and _BEFORE_BRACKET.search(before)):
        return False
    if _MIXED.search(before) and (match["second"] or match["top"] or re.match(r"[0-9]{3}(?![0-9])", match[0])):
        return False
    if match["sign"] and before.endswith("|"):
        return False
    return not _OPERATOR_AFTER.match(text, match.end())


def _value(match: re.Match) -> Fraction | None:
    above, below = match["top"] or match["first"], match["bottom"] or match["second"]
    value = Fraction(above.replace(",", ""))
    if below:
        divisor = Fraction(below.replace(",", ""))
        if not divisor:
            return None
        value /= divisor
    return -value if match["sign"] else value


def same_number(answer: str, truth: str) -> bool:
    """Tell whether `answer` states the number `truth`."""
    value = number(answer)
    return value is not None and value == number(truth)


def _wording(text: str) -> str:
    """Return `text` without case, articles, punctuation at the ends and differences in white space."""
    words = _plain(text).casefold().split()
    text = " ".join(word for word in words if word not in ("a", "an", "the")) or " ".join(words)
    return text.strip(string.punctuation + " ") or text


def same_text(answer: str, truth: str) -> bool:
    """Tell whether `answer` equals `truth`; case, articles, white space and outer punctuation do not count."""
    return _wording(answer) == _wording(truth)


def same_mathematics(answer: str, truth: str) -> bool:
    """Tell whether `answer` is `truth`: by value where `truth` is a number, else character by character, no blanks."""
    wanted = number(truth, whole=True)
    if wanted is not None:
        return number(answer) == wanted

    def signs(text: str) -> str:
        return re.sub(r"[\s{}]+", "", _plain(_final(_plain(text)))).casefold().rstrip(".")

    return bool(signs(truth)) and signs(answer) == signs(truth)


def chosen(answer: str, choices: Sequence[str]) -> int | None:
    """Return the number of the choice that `answer` names, by its letter ("B", "(b)", "B. text") or its wording."""
    text = _plain(answer)
    worded = [place for place, choice in enumerate(choices) if same_text(text, choice)]
    if len(worded) == 1:
        return worded[0]
    match = re.fullmatch(r"\(?([A-Za-z])(?:[).:]\s*(.*))?", text, re.DOTALL)
    if match is None:
        return None
    place = ord(match[1].upper()) - ord("A")
    return place if place < len(choices) else None
