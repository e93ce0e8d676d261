"""A turn as a chat completion: whole, and in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sessions.doors.gateway.answering import Telling, event
from sessions.doors.gateway.call_ids import id_of
from sessions.doors.gateway.following import Outcome
from sessions.models import Step, Turn


class ChatTelling(Telling):
    """Chat completion of a turn. Its usage is always sent: in a chunk of its own where the client asks for it so, else
    with the last one."""

    def __init__(self, turn: Turn, model: str, *, tells_usage_apart: bool) -> None:
        super().__init__(turn, model)
        self.tells_usage_apart = tells_usage_apart

    def opening(self) -> Iterator[str]:
        yield self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str) -> Iterator[str]:
        yield self._chunk({"content": text})

    def ending(self, outcome: Outcome) -> Iterator[str]:
        for index, step in enumerate(outcome.calls):
            yield self._chunk({"tool_calls": [{"index": index, **call_of(step)}]})
        usage = usage_of(outcome.turn)
        if self.tells_usage_apart:
            yield self._chunk({}, outcome.finish_reason)
            yield event({**self._frame("chat.completion.chunk"), "choices": [], "usage": usage})
        else:
            yield self._chunk({}, outcome.finish_reason, usage=usage)
        yield event("[DONE]")

    def failure(self, error: Mapping[str, Any]) -> Iterator[str]:
        yield event(error)
        yield event("[DONE]")

    def body(self, outcome: Outcome, text: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
        if outcome.calls:
            message["tool_calls"] = [call_of(step) for step in outcome.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": outcome.finish_reason}
        return {**self._frame("chat.completion"), "choices": [choice], "usage": usage_of(outcome.turn)}

    def _frame(self, kind: str) -> dict[str, Any]:
        turn = self.turn
        created = int(turn.created_at.timestamp())
        return {"id": f"chatcmpl-{turn.pk.hex}", "object": kind, "created": created, "model": self.model}

    def _chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return event({**self._frame("chat.completion.chunk"), "choices": [choice], **more})


def call_of(step: Step) -> dict[str, Any]:
    """A call that is left to the client."""
    function = {"name": step.tool_name, "arguments": step.arguments or "{}"}
    return {"id": id_of(step), "type": "function", "function": function}


def usage_of(turn: Turn) -> dict[str, Any]:
    """Tokens of all the turn's model calls, as chat completions count them."""
    return {
        "prompt_tokens": turn.input_tokens,
        "completion_tokens": turn.output_tokens,
        "total_tokens": turn.input_tokens + turn.output_tokens,
        "prompt_tokens_details": {"cached_tokens": turn.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": turn.reasoning_tokens},
    }
