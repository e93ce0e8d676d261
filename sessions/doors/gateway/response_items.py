"""The body of a request to /v1/responses, read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sessions.doors.gateway.chat_messages import call_id_of, choice_of, tool_call
from sessions.doors.gateway.conversations import (
    MAX_MESSAGES,
    MAX_TOOLS,
    GatewayRequest,
    Json,
    Message,
    check_names,
    check_order,
    effort_of,
    flag_of,
    list_of,
    number_of,
    object_of,
    plain_text,
    text_of,
    tool_of,
)
from sessions.doors.gateway.errors import Invalid
from sessions.doors.gateway.images import user_message

PARTS = ("input_text", "output_text", "text", "refusal")
ROLES = ("system", "developer", "user", "assistant")
RESPONSE_ID = re.compile(r"resp_(?P<turn>[0-9a-f]{32})\Z")


def read_responses(body: Json) -> GatewayRequest:
    """Read a request for a response. Anything else in its body is not looked at. Raises Invalid."""
    agent = body.get("model")
    if not isinstance(agent, str) or not agent:
        raise Invalid("Name a model: GET /v1/models lists them.", "model", "missing_required_parameter")
    if body.get("background"):
        raise Invalid("Nothing is answered in the background: send the header X-Toolhub-On-Disconnect.", "background")
    if body.get("prompt"):
        raise Invalid("No prompts are kept here: an agent has its own.", "prompt")
    follows = _previous(body)
    messages, system = _messages(body.get("input"))
    if follows is None:
        check_order(messages, "input")
    instructions = body.get("instructions")
    own = text_of(instructions, "instructions") if instructions is not None else ""
    return GatewayRequest(
        agent=agent,
        messages=messages,
        instructions="\n\n".join(filter(None, (own, system))),
        tools=_tools(body.get("tools")),
        parameters=_parameters(body),
        streams=flag_of(body, "stream"),
        is_stored=body.get("store") is None or flag_of(body, "store"),
        follows=follows,
    )


def conversation_of(body: Json) -> str:
    """The client's name of its conversation; "" for none. Raises Invalid."""
    conversation = body.get("conversation")
    name = conversation.get("id") if isinstance(conversation, Mapping) else conversation
    if name is None:
        return ""
    if body.get("previous_response_id") is not None:
        raise Invalid("Send conversation or previous_response_id, not both.", "conversation")
    return text_of(name, "conversation", most=1_000).strip()


def _previous(body: Json) -> UUID | None:
    previous = body.get("previous_response_id")
    if previous is None:
        return None
    found = RESPONSE_ID.match(previous) if isinstance(previous, str) else None
    if found is None:
        raise Invalid("There is no such response here.", "previous_response_id", "previous_response_not_found", 400)
    return UUID(found["turn"])


def _messages(value: Any) -> tuple[list[Message], str]:
    """The items as messages: calls stand in the message of the assistant in front of them."""
    if isinstance(value, str):
        return [{"role": "user", "content": text_of(value, "input")}], ""
    found: list[Message] = []
    system: list[str] = []
    for place, item in enumerate(list_of(value, "input", most=MAX_MESSAGES)):
        param = f"input.{place}"
        kind = object_of(item, param).get("type", "message")
        if kind == "reasoning":  # the model's own thoughts: what it may read of them stands with the stored turn
            continue
        if kind == "function_call":
            call = tool_call(item.get("call_id"), item.get("name"), item.get("arguments", "{}"), param)
            if not found or found[-1]["role"] != "assistant":
                found.append({"role": "assistant", "content": None})
            found[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            content = plain_text(item.get("output"), f"{param}.output", PARTS)
            id = call_id_of(item.get("call_id"), f"{param}.call_id")
            found.append({"role": "tool", "tool_call_id": id, "content": content})
        elif kind == "message":
            _add_message(found, system, item, param)
        else:
            raise Invalid(
                f"An item of the type {str(kind)[:40]!r} cannot be taken, but messages, calls of functions and their "
                "outputs.",
                f"{param}.type",
            )
    return found, "\n\n".join(filter(None, system))


def _add_message(found: list[Message], system: list[str], item: Json, param: str) -> None:
    role = item.get("role")
    if role not in ROLES:
        raise Invalid(f"The role must be one of {', '.join(ROLES)}.", f"{param}.role")
    if role == "user":
        found.append(user_message(item.get("content"), f"{param}.content", PARTS))
        return
    text = plain_text(item.get("content"), f"{param}.content", PARTS)
    if role in ("system", "developer"):
        system.append(text)
    elif role == "assistant" and found and found[-1]["role"] == "assistant" and "tool_calls" not in found[-1]:
        found[-1]["content"] = "\n\n".join(filter(None, (found[-1]["content"], text)))
    else:
        found.append({"role": role, "content": text or None})


def _tools(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    found = []
    for place, tool in enumerate(list_of(value, "tools", most=MAX_TOOLS)):
        kind = object_of(tool, f"tools.{place}").get("type")
        if kind != "function":
            raise Invalid(
                f"A tool of the type {str(kind)[:40]!r} cannot be taken, only functions: turn it off in the client. "
                "The agent's own tools need not be sent.",
                f"tools.{place}.type",
            )
        found.append(tool_of(tool, f"tools.{place}"))
    check_names(found)
    return found


def _parameters(body: Json) -> dict[str, Any]:
    """Read the parameters of each model call, by their names in `sessions/loop/model_calls/client_requests.py`."""
    found: dict[str, Any] = {
        "temperature": number_of(body, "temperature", 0, 2),
        "top_p": number_of(body, "top_p", 0, 1),
        "max_output_tokens": number_of(body, "max_output_tokens", 1, 10_000_000, whole=True),
    }
    reasoning = body.get("reasoning")
    if reasoning is not None and object_of(reasoning, "reasoning").get("effort") is not None:
        found["reasoning_effort"] = effort_of(reasoning["effort"], "reasoning.effort")
    if body.get("parallel_tool_calls") is not None:
        found["parallel_tool_calls"] = flag_of(body, "parallel_tool_calls")
    if body.get("text") is not None:
        text = object_of(body["text"], "text")
        found["response_format"] = _format(text.get("format"))
        if text.get("verbosity") is not None:
            found["verbosity"] = text_of(text["verbosity"], "text.verbosity", most=20)
    if body.get("tool_choice") is not None:
        choice = body["tool_choice"]
        nested = {"type": choice.get("type"), "function": choice} if isinstance(choice, Mapping) else choice
        found["tool_choice"] = choice_of(nested)
    return {name: value for name, value in found.items() if value is not None}


def _format(value: Any) -> dict[str, Any] | None:
    """Return the format as chat completions have it; None for plain text. Raises Invalid."""
    if value is None:
        return None
    wanted = object_of(value, "text.format")
    kind = wanted.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise Invalid("The type must be text, json_object or json_schema.", "text.format.type")
    if kind == "json_schema":
        return {"type": kind, "json_schema": {name: each for name, each in wanted.items() if name != "type"}}
    return {"type": kind} if kind == "json_object" else None
