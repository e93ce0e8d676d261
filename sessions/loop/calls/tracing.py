"""Spans of turns, model calls and tool calls for OpenTelemetry, by its conventions for generative AI.

Nothing of OpenTelemetry is imported unless the operator names a receiver of spans; then each worker sends its own. No
message, prompt, argument or result is in a span, and none names an organisation or a member.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from django.conf import settings

from capabilities.language_models.providers.resolve import ResolvedModel
from sessions.loop.calls.preparing import Prepared
from sessions.loop.clients.attempts import Asking
from sessions.loop.clients.replies import Reply
from sessions.loop.conversation.running import RunningTurn

if TYPE_CHECKING:
    from sessions.loop.calls.otel import Sender

logger = logging.getLogger(__name__)
MISSING = (
    "OTEL_EXPORTER_OTLP_ENDPOINT is set, and the packages that send traces are not installed: run `make otel`, or "
    "build the image with --build-arg OTEL=1. Everything else works; no traces are sent."
)
#: The rest of the OTEL_ variables is OpenTelemetry's to read.
UNREADABLE = "No traces are sent: OpenTelemetry does not take what its variables say (%s). Everything else works."
#: Names of vendors in the conventions, where they differ from the vendor's key.
VENDORS = {
    "azure": "azure.ai.openai",
    "google": "gcp.gemini",
    "xai": "x_ai",
    "mistral": "mistral_ai",
}

_sender: Sender | None = None


class Span:
    """One span, or an empty one where nobody receives spans: its attributes are dropped then."""

    def __init__(self, span: Any = None) -> None:
        self.span = span
        #: Tokens that a turn's model calls used so far, in this worker.
        self.used: Counter[str] = Counter()

    def note(self, attributes: Mapping[str, Any]) -> None:
        if self.span is not None:
            self.span.set_attributes({name: value for name, value in attributes.items() if value not in (None, "")})

    def fail(self, error_type: str) -> None:
        """Mark the span as failed with this error type; does nothing for ""."""
        if self.span is not None and error_type and _sender is not None:
            _sender.fail(self.span, error_type)


#: The span of the turn that runs in this context. Not OpenTelemetry's own: far sides of tools would be told its id.
_of_turn: ContextVar[Span | None] = ContextVar("toolhub_span_of_turn", default=None)


def start() -> None:
    """Begin to send spans, where the operator named a receiver. Where the packages are missing, or refuse what their
    variables say, a line in the log tells it, and the worker does without traces."""
    global _sender
    if not settings.TOOLHUB_TRACES or _sender is not None:
        return
    try:
        from sessions.loop.calls.otel import Sender  # noqa: PLC0415 -- leaf

        _sender = Sender()
    except ImportError:
        logger.warning(MISSING)
    except Exception as error:
        logger.warning(UNREADABLE, error)


def stop() -> None:
    """Send what is not sent yet, and nothing from now on."""
    global _sender
    if _sender is not None:
        _sender.close()
        _sender = None


# -- What is told -----------------------------------------------------------------------------------------------------


@contextmanager
def invoke_agent(turn: RunningTurn) -> Iterator[Span]:
    """The span of a turn, as far as this worker takes it.

    Its trace has the turn's own id; of a turn that another gave to an agent, the id of the turn at the top.
    """
    if _sender is None:
        yield Span()
        return
    row, claim = turn.row, turn.claim
    top = (row.charged_above or {}).get("turn", row.pk)
    started = _sender.start_turn(f"invoke_agent {row.agent.name}", row.pk, top, claim.parent_id, claim.epoch)
    with _ended(Span(started)) as span:
        span.note(
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": row.agent.name,
                "gen_ai.agent.id": str(row.agent.public_id),
                "gen_ai.conversation.id": str(row.session_id),
                "toolhub.turn.id": str(row.pk),
                "toolhub.turn.epoch": claim.epoch,
                **_model_called(turn.model),
            }
        )
        token = _of_turn.set(span)
        try:
            yield span
        finally:
            _of_turn.reset(token)
            span.note(span.used)


def ask(turn: RunningTurn, asking: Asking) -> Reply:
    """The model's reply, as `Asking.run`; its span counts tokens where the provider did."""
    with _child(f"chat {turn.model.name}") as span:
        span.note(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.conversation.id": str(turn.row.session_id),
                "gen_ai.request.max_tokens": asking.question.model.max_output_tokens,
                "gen_ai.request.temperature": asking.question.model.temperature,
                **_model_called(turn.model),
            }
        )
        reply = asking.run()
        used = _used(reply)
        finished = [reply.finish_reason] if reply.finish_reason else None
        span.note({"gen_ai.response.model": reply.model, "gen_ai.response.finish_reasons": finished, **used})
        if (of_turn := _of_turn.get()) is not None:
            of_turn.used.update(used)
        return reply


@contextmanager
def execute_tool(ready: Prepared) -> Iterator[Span]:
    """The span of a call that runs, or goes on, now. A call that is refused before has none."""
    with _child(f"execute_tool {ready.spec.name}") as span:
        span.note(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": ready.spec.name,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": ready.step.tool_call_id,
                "toolhub.tool.kind": ready.spec.kind,
            }
        )
        yield span


def _model_called(model: ResolvedModel) -> dict[str, Any]:
    vendor = "offline" if model.is_offline else model.vendor.key
    return {"gen_ai.provider.name": VENDORS.get(vendor, vendor), "gen_ai.request.model": model.name}


def _used(reply: Reply) -> dict[str, int]:
    """The tokens of the reply by the names of the conventions; nothing where the provider did not count."""
    usage = reply.usage
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_written,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }


# -- Spans ------------------------------------------------------------------------------------------------------------


@contextmanager
def _child(name: str) -> Iterator[Span]:
    """A span below the turn's."""
    of_turn = _of_turn.get()
    if _sender is None or of_turn is None:
        yield Span()
        return
    with _ended(Span(_sender.start_below(of_turn.span, name, is_client=name.startswith("chat ")))) as span:
        yield span


@contextmanager
def _ended(span: Span) -> Iterator[Span]:
    """End the span with the block. An exception of the block is recorded by its code or its kind: its words may be
    content."""
    try:
        yield span
    except Exception as error:
        span.fail(str(getattr(error, "code", "") or type(error).__name__))
        raise
    finally:
        span.span.end()
