"""The first screen of docs/reproduction.md: what was found in plain sentences, the limits, one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ragen_lab.markdown import table
from ragen_lab.reproduce.decisions import Decision
from ragen_lab.reproduce.judgement import Judged, Judgement

__all__ = ["LIMITS", "estimate", "findings", "summary"]

LIMITS = """\
> **Limits.** One model of a million parameters whose thoughts are three words, on Sokoban with one box and a bandit,
> on two CPU cores. Its loss of success is a policy collapse, not the Echo Trap of repeated reasoning. Where PPO
> learns (e12 and e14 to e20: 512 episodes a step, updates of 64 to 256 trajectories) runs have 11 steps, too few for
> a late collapse; in e0 to e2d (64 episodes a step, updates of 8 to 32) nothing ends far above its start. Five to
> eight seeds a variant. Nothing was run at the papers' sizes."""


def findings(judged: Sequence[Judgement]) -> Iterator[str]:
    """A numbered sentence for each experiment that has one, with its estimate, its runs and its state."""
    told = [one for one in judged if one.protocol.finding and one.decision is not Decision.NOT_RUN]
    for number, one in enumerate(told, start=1):
        text = one.protocol.finding.rstrip()
        for place, comparison in enumerate(one.comparisons):
            text = text.replace(f"{{{place}}}", _span(comparison))
        tests = ", ".join(dict.fromkeys(_test(it) for it in one.comparisons if it.comparison.decides))
        yield f"{number}. **{str(one.decision).capitalize()}** ([{_short(one)}](#{one.name}); {tests}): {text}"


def estimate(one: Judged) -> str:
    """The difference with its interval, its runs and its p-value, in words."""
    return f"{_span(one)}, {_test(one)}"


def _span(one: Judged) -> str:
    if one.effect is None or one.effect.low is None:
        return "not known yet"
    return f"{one.effect.value:+.2g} [{one.effect.low:+.2g}, {one.effect.high:+.2g}]"


def _test(one: Judged) -> str:
    runs = one.effect.runs if one.effect else 0
    p = "" if one.p_value is None else f", p {_p(one.p_value)}"
    return f"{runs} runs a side{p}" + ("" if one.exact_p is None else f", exact {_p(one.exact_p)}")


def summary(judged: Sequence[Judgement]) -> Iterator[str]:
    """The table: a row for each experiment with runs."""
    rows = []
    for one in judged:
        if one.decision is Decision.NOT_RUN:
            continue
        deciding = next((it for it in one.comparisons if it.comparison.decides), one.comparisons[0])
        counts = sorted({number for number in one.runs.values() if number})
        rows.append(
            (
                f"[{_short(one)}](#{one.name})",
                one.protocol.claim.rstrip("."),
                one.protocol.paper or "-",
                estimate(deciding),
                " to ".join(dict.fromkeys((str(counts[0]), str(counts[-1])))),
                f"**{one.decision}**" if one.decision in _DECIDED else str(one.decision),
                one.protocol.limit or "-",
            )
        )
    yield from table(
        ("", "claim", "the paper", "ours: difference, 95 %", "runs a variant", "verdict", "what it does not show"), rows
    )


_DECIDED = (Decision.CONFIRMED, Decision.CONTRADICTED)


def _short(one: Judgement) -> str:
    return one.name.partition("_")[0]


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"
