"""Making and sending of spans: the only module that imports OpenTelemetry, which is an optional extra.

It sends OTLP over HTTP. The receiver, its headers, the sampler and the rest are the standard OTEL_ variables, which
OpenTelemetry reads itself. Its global provider stays unset: libraries that would use it send nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Thread
from typing import Any
from uuid import UUID

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

#: Seconds that the end of a process waits for its last spans to be sent.
FLUSH_SECONDS = 2.0
NAME = "toolhub"
_SPAN_DIGITS = 2**64 - 1


class Ids(RandomIdGenerator):
    """Random ids, but where a turn says which."""

    #: Ids of the trace and of the span that is begun in this context.
    given: ContextVar[tuple[int, int] | None] = ContextVar("toolhub_span_ids", default=None)

    def generate_trace_id(self) -> int:
        given = self.given.get()
        return given[0] if given else super().generate_trace_id()

    def generate_span_id(self) -> int:
        given = self.given.get()
        return given[1] if given else super().generate_span_id()

    @contextmanager
    def giving(self, ids: tuple[int, int] | None) -> Iterator[None]:
        token = self.given.set(ids)
        try:
            yield
        finally:
            self.given.reset(token)


class Sender:
    """Makes the spans of this process, and sends them from a thread of its own."""

    def __init__(self) -> None:
        named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        self._ids = Ids()
        self._provider = TracerProvider(
            resource=Resource.create({} if named else {"service.name": NAME}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer(NAME)

    def start_turn(self, name: str, turn_id: UUID, top: UUID | str, parent_id: UUID | None, epoch: int) -> Span:
        """The span of one claim of a turn.

        The trace has the id of the turn at the top. The first claim's span has the last 64 bits of its turn's id, so
        that any worker knows it: spans of later claims, and of turns that this one gives to other agents, are below.
        """
        trace_id, own = UUID(str(top)).int, turn_id.int & _SPAN_DIGITS
        above = own if epoch > 1 else parent_id.int & _SPAN_DIGITS if parent_id is not None else None
        with self._ids.giving((trace_id, own) if epoch == 1 else None):
            return self._start(name, Context() if above is None else self._remote(trace_id, above, name))

    def start_below(self, span: Any, name: str, *, is_client: bool) -> Span:
        kind = SpanKind.CLIENT if is_client else SpanKind.INTERNAL
        return self._start(name, set_span_in_context(span, Context()), kind)

    def _start(self, name: str, context: Context, kind: SpanKind = SpanKind.INTERNAL) -> Span:
        return self._tracer.start_span(name, context, kind, record_exception=False, set_status_on_exception=False)

    def _remote(self, trace_id: int, span_id: int, name: str) -> Context:
        """A span of another worker, sampled if the trace is: the sampler decides by its id, here as there."""
        sampled = self._provider.sampler.should_sample(None, trace_id, name).decision == Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        return set_span_in_context(NonRecordingSpan(SpanContext(trace_id, span_id, True, flags)), Context())

    def fail(self, span: Any, error_type: str) -> None:
        span.set_attribute("error.type", error_type)
        span.set_status(Status(StatusCode.ERROR))

    def close(self) -> None:
        """Send what is left, for FLUSH_SECONDS at most.

        OpenTelemetry's own flush has no limit of time, and its shutdown waits half a minute for a receiver that hangs.
        """
        sending = Thread(target=self._provider.shutdown, name="spans", daemon=True)
        sending.start()
        sending.join(FLUSH_SECONDS)
