"""A turn as a response of OpenAI's newer API: whole, and as events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sessions.doors.gateway.answering import Telling, event
from sessions.doors.gateway.call_ids import id_of
from sessions.doors.gateway.following import Outcome
from sessions.models import Step, Turn

#: Fields of a request that stand in its response, with their values where the request says nothing.
REPEATED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "store": True,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
}
#: Why a response is incomplete, by the reason for which its turn was cut short.
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponseTelling(Telling):
    """One message with all words of the turn, and behind it the calls that are left to the client."""

    def __init__(self, turn: Turn, model: str, request: Mapping[str, Any]) -> None:
        super().__init__(turn, model)
        self.request = request
        self._number = -1
        self._texts: list[str] = []

    def opening(self) -> Iterator[str]:
        response = self._response("in_progress", [])
        yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response)

    def piece(self, text: str) -> Iterator[str]:
        if not self._texts:
            message = {**self._message(""), "status": "in_progress", "content": []}
            yield self._event("response.output_item.added", output_index=0, item=message)
            yield self._event("response.content_part.added", **self._place, part=_text_part(""))
        self._texts.append(text)
        yield self._event("response.output_text.delta", **self._place, delta=text, logprobs=[])

    def ending(self, outcome: Outcome) -> Iterator[str]:
        text, output = "".join(self._texts), list[dict[str, Any]]()
        if self._texts:
            output.append(self._message(text))
            yield self._event("response.output_text.done", **self._place, text=text, logprobs=[])
            yield self._event("response.content_part.done", **self._place, part=_text_part(text))
            yield self._event("response.output_item.done", output_index=0, item=output[0])
        for step in outcome.calls:
            yield from self._call_events(step, len(output))
            output.append(item_of(step))
        response = self._ended(outcome, output)
        yield self._event(f"response.{response['status']}", response=response)

    def failure(self, error: Mapping[str, Any]) -> Iterator[str]:
        details = {"code": error["error"]["code"] or "server_error", "message": error["error"]["message"]}
        response = {**self._response("failed", []), "error": details}
        yield self._event("response.failed", response=response)

    def body(self, outcome: Outcome, text: str) -> dict[str, Any]:
        output = [self._message(text)] if text else []
        return self._ended(outcome, [*output, *(item_of(step) for step in outcome.calls)])

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": message_id_of(self.turn), "output_index": 0, "content_index": 0}

    def _message(self, text: str) -> dict[str, Any]:
        content = [_text_part(text)]
        return {
            "id": message_id_of(self.turn),
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }

    def _call_events(self, step: Step, index: int) -> Iterator[str]:
        item = item_of(step)
        begun = {**item, "arguments": "", "status": "in_progress"}
        place = {"item_id": item["id"], "output_index": index}
        yield self._event("response.output_item.added", output_index=index, item=begun)
        yield self._event("response.function_call_arguments.delta", **place, delta=item["arguments"])
        yield self._event("response.function_call_arguments.done", **place, arguments=item["arguments"])
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _ended(self, outcome: Outcome, output: list[dict[str, Any]]) -> dict[str, Any]:
        why = INCOMPLETE.get(outcome.finish_reason)
        response = self._response("incomplete" if why else "completed", output)
        details = {"reason": why} if why else None
        return {**response, "incomplete_details": details, "usage": usage_of(outcome.turn)}

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        given = {name: self.request[name] for name in REPEATED if self.request.get(name) is not None}
        return {
            "id": f"resp_{self.turn.pk.hex}",
            "object": "response",
            "created_at": int(self.turn.created_at.timestamp()),
            "status": status,
            "model": self.model,
            "output": output,
            "error": None,
            "incomplete_details": None,
            "usage": None,
            **REPEATED,
            **given,
        }

    def _event(self, kind: str, **fields: Any) -> str:
        self._number += 1
        return event({"type": kind, "sequence_number": self._number, **fields}, kind)


def message_id_of(turn: Turn) -> str:
    """The id of the message that holds all words of the turn."""
    return f"msg_{turn.pk.hex}"


def item_of(step: Step) -> dict[str, Any]:
    """A call that is left to the client."""
    call_id = id_of(step)
    return {
        "id": f"fc_{call_id.removeprefix('call_')}",
        "type": "function_call",
        "call_id": call_id,
        "name": step.tool_name,
        "arguments": step.arguments or "{}",
        "status": "completed",
    }


def usage_of(turn: Turn) -> dict[str, Any]:
    """Tokens of all the turn's model calls, as responses count them."""
    return {
        "input_tokens": turn.input_tokens,
        "input_tokens_details": {"cached_tokens": turn.cached_tokens, "cache_write_tokens": turn.cache_write_tokens},
        "output_tokens": turn.output_tokens,
        "output_tokens_details": {"reasoning_tokens": turn.reasoning_tokens},
        "total_tokens": turn.input_tokens + turn.output_tokens,
    }


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
