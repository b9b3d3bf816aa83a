"""Trajectories as OpenTelemetry spans, exported by the SDK over OTLP/HTTP or as JSON lines.

A trajectory is a trace of its own. Its root span is `agent.trajectory`; below it each event has a span
`agent.trajectory.step`: the plan (the model's text before its answer), the choice of actions, the response of the
environment, and the end. Ids are computed from the trajectory, so that a second export makes no second trace.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit

from ragen_verl.errors import MissingExtra, RecipeError, adding
from ragen_verl.rollout.trajectory import Record

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["export", "jsonl", "otlp"]

_TRAJECTORY, _STEP = "agent.trajectory", "agent.trajectory.step"
_PLAN, _TOOL_CHOICE, _RESPONSE, _END = "plan", "tool_choice", "environment_response", "termination"
"""Kinds of steps: the values of the attribute `agent.trajectory.step.kind`."""

_AT_ONCE = 64  # trajectories in one request
_NS = 1_000_000_000


def otlp(endpoint: str) -> SpanExporter:
    """An exporter to a collector.

    Args:
        endpoint: the collector's address, such as http://127.0.0.1:4318; without a path `/v1/traces` is added.

    Raises:
        MissingExtra: the SDK's exporter is not installed.
        RecipeError: `endpoint` is no address.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise RecipeError(f"{endpoint!r} is no address of a collector: write http://HOST:PORT, such as port 4318.")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise MissingExtra(f"Spans need the OpenTelemetry SDK: {adding('otel')}.") from None
    return OTLPSpanExporter(endpoint if parts.path.strip("/") else endpoint.rstrip("/") + "/v1/traces")


def jsonl(out: TextIO) -> SpanExporter:
    """An exporter that writes each span as the SDK's own JSON, one on each line.

    Raises:
        MissingExtra: the SDK is not installed.
    """
    try:
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter
    except ImportError:
        raise MissingExtra(f"Spans need the OpenTelemetry SDK: {adding('otel')}.") from None
    return ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\n")


def export(records: Iterable[Record], exporter: SpanExporter, run: str) -> int:
    """Make spans of trajectories and hand them to an exporter.

    Args:
        records: trajectory records of any version.
        exporter: it gets the spans in batches and is shut down at the end.
        run: the name of the run, an attribute of the resource.

    Returns:
        The number of trajectories.

    Raises:
        RecipeError: the exporter could not deliver; earlier batches have arrived.
    """
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    class Ids(IdGenerator):
        """Ids that are computed from the trajectory."""

        def begin(self, record: Record) -> None:
            names = ("split", "step", "policy", "env", "seed", "rollout_index")
            self.key, self.count = repr([run, *(record.get(name) for name in names)]).encode(), 0

        def generate_trace_id(self) -> int:
            return int.from_bytes(blake2b(self.key, digest_size=16).digest(), "big")

        def generate_span_id(self) -> int:
            self.count += 1
            return int.from_bytes(blake2b(self.key + b"%d" % self.count, digest_size=8).digest(), "big")

    ids, memory, done, waiting = Ids(), InMemorySpanExporter(), 0, 0
    resource = Resource.create({"service.name": "ragen-verl", "ragen.run": run})
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, id_generator=ids, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("ragen_verl")

    def deliver() -> None:
        if waiting and exporter.export(memory.get_finished_spans()) is not SpanExportResult.SUCCESS:
            raise RecipeError(
                f"The spans were not taken after {done} trajectories: is a collector that speaks OTLP over HTTP "
                "listening there?"
            )
        memory.clear()

    try:
        for record in records:
            ids.begin(record)
            _spans(tracer, record)
            waiting += 1
            if waiting == _AT_ONCE:
                deliver()
                done, waiting = done + waiting, 0
        deliver()
    finally:
        exporter.shutdown()
    return done + waiting


def _spans(tracer: Any, record: Record) -> None:
    from opentelemetry.trace import set_span_in_context
    from opentelemetry.trace.status import Status, StatusCode

    begun = int((record["started"] or time.time()) * _NS)
    names = ("env", "env_id", "seed", "rollout_index", "split", "step", "policy", "return", "success", "stop_reason")
    about = {name: record[name] for name in names if record.get(name) is not None}
    about |= {"turns": len(record["turns"]), "system": (record["preamble"] or {}).get("system")}
    about["task"] = (record["preamble"] or {}).get("head")
    root = tracer.start_span(_TRAJECTORY, start_time=begun, attributes=_named(_TRAJECTORY, about))
    if record["excluded"]:
        root.set_status(Status(StatusCode.ERROR, record["error"]))
    under, at = set_span_in_context(root), begun
    for index, (kind, seconds, attributes) in enumerate(_steps(record)):
        end = at + int(seconds * _NS)
        known = _named(_STEP, {"index": index, "kind": kind, **attributes})
        tracer.start_span(_STEP, context=under, start_time=at, attributes=known).end(end_time=end)
        at = end
    root.end(end_time=max(at, begun + int(record["seconds"] * _NS)))


def _steps(record: Record) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """Kind, seconds and attributes of each step; the time of a response is split by numbers of characters."""
    for turn in record["turns"]:
        place, spent = {"turn": turn["turn"], "state": turn["state"]}, turn["generate_seconds"]
        planning = 0.0
        if turn["reasoning"]:
            planning = spent * len(turn["reasoning"]) / max(len(turn["reasoning"]), len(turn["response"]))
            yield _PLAN, planning, {**place, "reasoning": turn["reasoning"]}
        chosen = {"action": turn["actions"], "valid": turn["valid"], "response": turn["response"]}
        yield _TOOL_CHOICE, spent - planning, {**place, **chosen}
        answered = {"observation": turn["observation"], "reward": turn["reward"], "penalty": turn["penalty"]}
        answered |= {f"rewards.{part}": value for part, value in turn["rewards"].items()}
        if calls := turn.get("calls"):
            answered |= {f"tool.{name}": [str(call[name]) for call in calls] for name in ("name", "error")}
        yield _RESPONSE, turn["env_seconds"], {**place, "action": turn["executed"], **answered}
    last = record["turns"][-1]["observation"] if record["turns"] else None
    ended = {"stop_reason": record["stop_reason"], "success": record["success"], "reward": record["return"]}
    yield _END, 0.0, {"state": last, **ended, "error": record["error"]}


def _named(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": value for name, value in values.items() if value is not None}
