"""OpenTelemetry spans: in the SDK's memory, over OTLP to a collector on this machine, and as JSON lines."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.status import StatusCode
from ragen_lab.convert import spans
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.errors import MissingExtra, RecipeError
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn
from ragen_verl.runs.folder import RunFolder


def record(seed: int = 7, stop: StopReason = StopReason.SOLVED, **more) -> dict:
    turns = [
        Turn("s1", [1], [2], text="abcd</think><answer>Up</answer>", think="abcd", actions=["Up", "x"], executed=["Up"],
             reward=-0.1, penalty=-0.5, observation="s2", generate_seconds=2.0, env_seconds=0.5),
        Turn("s2", [1], [2], text="Right", actions=["Right"], executed=["Right"], reward=1.0, valid=True,
             observation="s3", generate_seconds=1.0, env_seconds=0.25),
    ]  # fmt: skip
    episode = Trajectory(
        "Walk-v0", seed, 1, turns=turns, stop_reason=stop, env_name="Walk", started=1000.0, seconds=4.0
    )
    episode.system, episode.task_prompt, episode.error = "Be good.", "Walk.", "it broke" if episode.excluded else None
    return episode.record() | {"split": "val", "step": 3} | more


class Kept(InMemorySpanExporter):
    """The SDK's exporter to memory, which stays readable after its shutdown."""

    def shutdown(self) -> None:
        pass


def exported(*records: dict) -> list:
    memory = Kept()
    assert spans.export(records, memory, "a run") == len(records)
    return list(memory.get_finished_spans())


def of_kind(found: list, kind: str) -> list[dict]:
    """Attributes without their prefix, of the steps of a kind, in order."""
    steps = [dict(one.attributes) for one in found if one.name == "agent.trajectory.step"]
    steps = [{key.removeprefix("agent.trajectory.step."): value for key, value in one.items()} for one in steps]
    return sorted((one for one in steps if one["kind"] == kind), key=lambda one: one["index"])


def test_every_thing_that_happened_is_a_step() -> None:
    found = exported(record())
    assert [(one["index"], one["turn"], one["reasoning"]) for one in of_kind(found, "plan")] == [(0, 1, "abcd")]
    chosen, answered = of_kind(found, "tool_choice"), of_kind(found, "environment_response")
    assert [(one["index"], one["state"], one["action"], one["valid"]) for one in chosen] == [
        (1, "s1", ("Up", "x"), False), (3, "s2", ("Right",), True),
    ]  # fmt: skip
    assert [(one["index"], one["action"], one["observation"], one["reward"], one["penalty"]) for one in answered] == [
        (2, ("Up",), "s2", -0.1, -0.5), (4, ("Right",), "s3", 1.0, 0.0),
    ]  # fmt: skip
    (end,) = of_kind(found, "termination")
    assert end == {"index": 5, "kind": "termination", "state": "s3", "stop_reason": "solved", "success": True,
                   "reward": pytest.approx(0.4)}  # fmt: skip


def test_the_parts_of_a_reward_are_attributes_of_the_response() -> None:
    rewarded = record()
    rewarded["turns"][1]["rewards"] = {"environment": 0.5, "brevity/short": -0.25}
    first, second = of_kind(exported(rewarded), "environment_response")
    assert {name: value for name, value in second.items() if name.startswith("rewards.")} == {
        "rewards.environment": 0.5, "rewards.brevity/short": -0.25,
    }  # fmt: skip
    assert not any(name.startswith("rewards.") for name in first)


def test_a_trajectory_is_one_trace_with_its_steps_below_it() -> None:
    found = exported(record(), record(8))
    roots = [one for one in found if one.name == "agent.trajectory"]
    assert len({one.context.trace_id for one in found}) == len(roots) == 2
    for one in found:
        (root,) = [root for root in roots if root.context.trace_id == one.context.trace_id]
        assert one is root or one.parent.span_id == root.context.span_id
        assert root.start_time <= one.start_time <= one.end_time <= root.end_time
    known = roots[0].attributes
    assert {name: known[f"agent.trajectory.{name}"] for name in ("env", "seed", "split", "step", "turns", "task")} == {
        "env": "Walk", "seed": 7, "split": "val", "step": 3, "turns": 2, "task": "Walk.",
    }  # fmt: skip
    assert roots[0].resource.attributes["ragen.run"] == "a run"


def test_times_are_those_of_the_episode() -> None:
    found = exported(record())
    root = next(one for one in found if one.name == "agent.trajectory")
    assert (root.start_time, root.end_time) == (1000 * 10**9, 1004 * 10**9)
    steps = sorted(
        (one for one in found if one is not root), key=lambda one: one.attributes["agent.trajectory.step.index"]
    )
    seconds = [(one.end_time - one.start_time) / 10**9 for one in steps]
    planned = 2.0 * len("abcd") / len("abcd</think><answer>Up</answer>")
    assert seconds == pytest.approx([planned, 2.0 - planned, 0.5, 1.0, 0.25, 0.0])
    assert all(one.start_time == before.end_time for before, one in pairwise(steps))


def test_ids_are_those_of_the_run_in_every_export() -> None:
    one, again = ([span.context for span in exported(record(), record(8))] for _ in range(2))
    assert [(span.trace_id, span.span_id) for span in one] == [(span.trace_id, span.span_id) for span in again]
    assert len({span.span_id for span in one}) == len(one)
    assert not {span.trace_id for span in exported_contexts(record(step=4))} & {span.trace_id for span in one}


def exported_contexts(*records: dict) -> list:
    return [span.context for span in exported(*records)]


def test_failures_are_errors_and_older_records_are_exported_too() -> None:
    failed = record(stop=StopReason.ENV_ERROR)
    root = next(one for one in exported(failed) if one.name == "agent.trajectory")
    assert root.status.status_code is StatusCode.ERROR and root.status.description == "it broke"
    old = record() | {"started": None, "preamble": None}
    assert len(exported(old)) == len(exported(record()))
    begun = exported(record() | {"turns": [], "excluded": True, "error": "no"})
    assert [one.name for one in begun] == ["agent.trajectory.step", "agent.trajectory"]


# -- a collector on this machine --------------------------------------------------------------------------------------


class Collector(BaseHTTPRequestHandler):
    """Takes OTLP requests over HTTP and reads their protobuf."""

    taken: list
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/x-protobuf"
        self.taken.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[type[Collector]]:
    kind = type("OneCollector", (Collector,), {"taken": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        kind.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield kind
        server.shutdown()
        thread.join()


def test_a_collector_gets_the_spans_over_otlp(collector: type[Collector], tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write_trajectories("val", 3, [record(seed) for seed in range(70)])
    done = CliRunner().invoke(app, ["convert", str(folder.path), "--to", "otel", "--endpoint", collector.url])
    assert done.exit_code == 0 and done.output.startswith("70 trajectories as spans"), done.output
    assert [path for path, _ in collector.taken] == ["/v1/traces"] * 2
    groups = [group for _, request in collector.taken for group in request.resource_spans]
    assert {one.value.string_value for group in groups for one in group.resource.attributes} >= {"ragen-verl", "run"}
    got = [span for group in groups for scope in group.scope_spans for span in scope.spans]
    assert len(got) == 70 * 7 and len({span.span_id for span in got}) == len(got)
    kinds = [one.value.string_value for span in got for one in span.attributes if one.key.endswith(".kind")]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "plan": 70, "tool_choice": 140, "environment_response": 140, "termination": 70,
    }  # fmt: skip


def test_a_collector_that_refuses_ends_it_with_a_sentence(collector: type[Collector]) -> None:
    collector.status = 400
    with pytest.raises(RecipeError, match="not taken after 0 trajectories"):
        spans.export([record()], spans.otlp(collector.url + "/v1/traces"), "run")
    assert [path for path, _ in collector.taken] == ["/v1/traces"]


@pytest.mark.parametrize("address", ["localhost:4318", "file:///x", "http://"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(RecipeError, match="no address of a collector"):
        spans.otlp(address)


def test_json_lines_hold_the_sdks_spans(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write_trajectories("val", 3, [record()])
    out = tmp_path / "spans.jsonl"
    done = CliRunner().invoke(app, ["convert", str(folder.path), "--to", "otel", "--out", str(out)])
    assert done.exit_code == 0, done.output
    rows = [json.loads(one) for one in out.read_text().splitlines()]
    assert len(rows) == 7 and rows[-1]["name"] == "agent.trajectory" and rows[-1]["parent_id"] is None


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    for make in (lambda: spans.otlp("http://127.0.0.1:1"), lambda: spans.jsonl(sys.stdout)):
        with pytest.raises(MissingExtra, match=r"ragen-verl\[otel\]"):
            make()
