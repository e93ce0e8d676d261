"""Spans of turns, as a receiver of OTLP over HTTP gets them."""

from __future__ import annotations

import gzip
import re
import socket
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import (
    GenAiOperationNameValues,
    GenAiProviderNameValues,
)

from capabilities.language_models.providers.vendors import VENDORS
from capabilities.models import Provider
from sessions.loop.calls import tracing
from sessions.models import ChatSession, Turn, TurnStatus
from sessions.turns import ledger
from tests.cast import give_tool, make_agent, make_category, make_tool
from tests.paths import ROOT
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import accept, run, work, work_all
from tests.sessions.steps import claimed
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


class Receiver:
    """Listens where spans are sent to, and keeps what comes."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_packed = self.headers.get("Content-Encoding") == "gzip"
                receiver.bodies.append(gzip.decompress(body) if is_packed else body)
                receiver.paths.append(self.path)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def resources(self) -> list[dict[str, Any]]:
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [told(each.resource.attributes) for request in requests for each in request.resource_spans]

    @property
    def spans(self) -> list[Span]:
        """In the order in which they began."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        found = [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)


def told(attributes: Any) -> dict[str, Any]:
    return {each.key: value_of(each.value) for each in attributes}


def value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(each) for each in value.array_value.values]
    return getattr(value, kind)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Receiver]:
    """Spans are sent to it when `tracing.stop` is called."""
    found = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
    settings.TOOLHUB_TRACES = True
    tracing.start()
    yield found
    tracing.stop()
    found.close()


def sent(receiver: Receiver) -> list[Span]:
    tracing.stop()
    return receiver.spans


def test_a_turn_is_a_trace_of_its_model_calls_and_tool_calls(
    session: ChatSession, provider: ScriptedOpenAI, receiver: Receiver
) -> None:
    provider.enqueue(
        Say("Let me see.", calls=[call("calculator", {"expression": "6*7"}, id="call_1"), call("uuid", id="call_2")]),
        Say("It is 42, zebra."),
    )

    turn = run(session, "What is six times seven, zebra?")

    assert turn.status == TurnStatus.DONE
    whole, first, *tools, second = sent(receiver)
    assert [whole.name, first.name, second.name] == ["invoke_agent Starter", "chat scripted", "chat scripted"]
    assert {each.name for each in tools} == {"execute_tool calculator", "execute_tool uuid"}
    assert {each.trace_id for each in receiver.spans} == {turn.pk.bytes}
    assert (whole.span_id, whole.parent_span_id) == (turn.pk.bytes[8:], b"")
    assert {each.parent_span_id for each in (first, *tools, second)} == {whole.span_id}
    assert (whole.kind, first.kind, tools[0].kind) == (
        Span.SPAN_KIND_INTERNAL,
        Span.SPAN_KIND_CLIENT,
        Span.SPAN_KIND_INTERNAL,
    )
    assert told(whole.attributes) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "Starter",
        "gen_ai.agent.id": str(session.agent.public_id),
        "gen_ai.conversation.id": str(session.pk),
        "gen_ai.provider.name": "other",
        "gen_ai.request.model": "scripted",
        "gen_ai.usage.input_tokens": turn.input_tokens,
        "gen_ai.usage.output_tokens": turn.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": turn.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": 0,
        "toolhub.turn.id": str(turn.pk),
        "toolhub.turn.epoch": 1,
    }
    of_call = told(first.attributes)
    assert of_call["gen_ai.operation.name"] == "chat"
    assert of_call["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert (of_call["gen_ai.request.model"], of_call["gen_ai.response.model"]) == ("scripted", "scripted")
    assert told(second.attributes)["gen_ai.usage.output_tokens"] + of_call["gen_ai.usage.output_tokens"] == (
        turn.output_tokens
    )
    calculator = next(each for each in tools if each.name.endswith("calculator"))
    assert told(calculator.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "calculator",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
        "toolhub.tool.kind": "builtin",
    }
    assert receiver.resources[0]["service.name"] == "toolhub"
    assert set(receiver.paths) == {"/v1/traces"}


def documented() -> dict[str, set[str]]:
    """The attributes of each span, by the first word of its name, as docs/metrics.md tells them."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    found: dict[str, set[str]] = {}
    for span, attributes in re.findall(r"^\| `(\w+) \{\w+\}` \| .+? \| (.+) \|$", text, re.MULTILINE):
        names = re.findall(r"`([\w.*]+)`", attributes)
        found[span] = {f"gen_ai.usage{name}" if name.startswith(".") else name for name in names}
    usage = {name for name in found["chat"] if name.startswith("gen_ai.usage.")}
    found["invoke_agent"] = found["invoke_agent"] - {"gen_ai.usage.*"} | usage
    return found


def test_attributes_are_those_of_the_conventions_and_each_is_documented(
    session: ChatSession, provider: ScriptedOpenAI, receiver: Receiver
) -> None:
    conventions = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    with organisation_scope(session.organisation_id):
        type(session.agent).objects.update(temperature=0.5)
    provider.enqueue(Say(calls=[call("calculator", {"expression": "6*7"})]), Say("42"))

    run(session)

    found = {span.name.partition(" ")[0]: set(told(span.attributes)) for span in sent(receiver)}
    assert found == documented()
    assert {name for names in found.values() for name in names if name.startswith("gen_ai.")} <= conventions
    assert {each.value for each in GenAiOperationNameValues} >= found.keys()


def test_a_vendor_has_its_name_in_the_conventions_where_they_know_it() -> None:
    known = {each.value for each in GenAiProviderNameValues}
    names = {vendor.key: tracing.VENDORS.get(vendor.key, vendor.key) for vendor in VENDORS}

    assert set(tracing.VENDORS.values()) <= known
    assert names.keys() - {"openrouter", "vllm", "ollama", "lmstudio", "llamacpp"} == {
        key for key, name in names.items() if name in known
    }


def test_no_content_and_no_name_of_a_tenant_is_in_a_span(
    session: ChatSession, provider: ScriptedOpenAI, receiver: Receiver
) -> None:
    provider.enqueue(
        Say("zebrathought", calls=[call("calculator", {"expression": "zebraargument"}), call("zebratool", {})]),
        Say("zebraanswer"),
    )

    run(session, "zebramessage")
    spans = sent(receiver)

    assert len(spans) == 4
    content = b"".join(receiver.bodies)
    for word in (b"zebra", b"Be brief", session.membership.user.email.encode(), b"acme", b"Acme", b"Bob"):
        assert word not in content
    failed = next(each for each in spans if each.name == "execute_tool calculator")
    assert told(failed.attributes)["error.type"] == "failed"
    assert (failed.status.code, failed.status.message, len(failed.events)) == (Status.STATUS_CODE_ERROR, "", 0)


def test_a_model_that_fails_marks_its_call_and_the_turn(
    session: ChatSession, provider: ScriptedOpenAI, receiver: Receiver
) -> None:
    with organisation_scope(session.organisation_id):
        Provider.objects.update(base_url="http://127.0.0.1:9/v1")

    turn = run(session)

    whole, first = sent(receiver)
    assert turn.status == TurnStatus.FAILED
    assert told(whole.attributes)["error.type"] == told(first.attributes)["error.type"] == turn.error_code
    assert "gen_ai.usage.input_tokens" not in told(whole.attributes)
    assert b"127.0.0.1" not in b"".join(receiver.bodies)


def give_back(turn: Turn) -> None:
    """A worker took it, and gave it back before it had anything to send."""
    with organisation_scope(turn.organisation_id):
        ledger.release(claimed(turn))


def test_a_turn_that_another_worker_takes_up_goes_on_in_its_trace(
    session: ChatSession, provider: ScriptedOpenAI, receiver: Receiver
) -> None:
    turn = accept(session)
    give_back(turn)
    provider.enqueue(Say("Here."))

    work(turn)

    second, _ = sent(receiver)
    assert (second.trace_id, second.parent_span_id) == (turn.pk.bytes, turn.pk.bytes[8:])
    assert second.span_id != turn.pk.bytes[8:]
    assert told(second.attributes)["toolhub.turn.epoch"] == 2


def test_the_turn_of_an_agent_that_another_asked_is_below_its_turn(
    bob: Membership, session: ChatSession, provider: ScriptedOpenAI, receiver: Receiver
) -> None:
    spawn = make_tool(bob.organisation, "spawn_agent", category=make_category(bob.organisation, "agents"))
    give_tool(session.agent, spawn)
    make_agent(bob.organisation, slug="helper", model=session.agent.model)
    provider.enqueue(
        Say(calls=[call("spawn_agent", {"agent": "helper", "message": "Count."})]), Say("Three."), Say("It says three.")
    )
    turn = accept(session)

    work_all()

    with organisation_scope(bob.organisation_id):
        child = Turn.objects.exclude(pk=turn.pk).get()
        assert Turn.objects.get(pk=turn.pk).answer == "It says three."
    spans = sent(receiver)
    assert {UUID(bytes=each.trace_id) for each in spans} == {turn.pk}
    turns = {each.span_id: each for each in spans if each.name.startswith("invoke_agent")}
    assert turns[child.pk.bytes[8:]].parent_span_id == turn.pk.bytes[8:]
    assert [each.name for each in spans].count("invoke_agent Starter") == 2
    assert {each.parent_span_id for each in spans} <= {b"", *turns}


def test_a_sampler_drops_a_trace_as_a_whole(
    session: ChatSession, provider: ScriptedOpenAI, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracing.stop()
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    tracing.start()
    turn = accept(session)
    give_back(turn)
    provider.enqueue(Say("Here."))

    assert work(turn).status == TurnStatus.DONE
    assert sent(receiver) == []


@pytest.mark.parametrize("hangs", [False, True])
def test_a_receiver_that_is_away_or_hangs_costs_no_turn_and_holds_up_no_end(
    session: ChatSession, provider: ScriptedOpenAI, settings: Any, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    """Each span is a request of its own, and would take the four seconds until it is given up."""
    monkeypatch.setattr("sessions.loop.calls.otel.FLUSH_SECONDS", 0.2)
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "4")
    settings.TOOLHUB_TRACES = True
    provider.enqueue(Say("Here."))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1] if hangs else 9
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        tracing.start()

        assert run(session).status == TurnStatus.DONE
        begin = time.monotonic()
        tracing.stop()

        assert time.monotonic() - begin < 3


def test_without_a_receiver_nothing_is_made(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("Here."))

    tracing.start()

    assert tracing._sender is None
    assert run(session).status == TurnStatus.DONE


def test_without_the_packages_the_log_says_what_to_install(
    session: ChatSession,
    provider: ScriptedOpenAI,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings.TOOLHUB_TRACES = True
    monkeypatch.delitem(sys.modules, "sessions.loop.calls.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    provider.enqueue(Say("Here."))

    tracing.start()

    assert "run `make otel`" in caplog.text
    assert run(session).status == TurnStatus.DONE


def test_what_opentelemetry_refuses_is_told_and_stops_nothing_else(
    session: ChatSession,
    provider: ScriptedOpenAI,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """More spans at once than are kept."""
    settings.TOOLHUB_TRACES = True
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "99999")
    provider.enqueue(Say("Here."))

    tracing.start()

    assert "No traces are sent: OpenTelemetry" in caplog.text
    assert "(max_export_batch_size" in caplog.text
    assert run(session).status == TurnStatus.DONE
