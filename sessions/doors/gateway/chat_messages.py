"""The body of a request to /v1/chat/completions, read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from capabilities.contract.wire import sha256_hex
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
from sessions.loop.clients.replies import CALL_ID, Call
from sessions.loop.tools.execution import stored_call

PARTS = ("text", "refusal")
ROLES = ("system", "developer", "user", "assistant", "tool")
#: Numbers that go to the model as they are, with their bounds in OpenAI's reference.
NUMBERS = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}


def read_chat(body: Json) -> GatewayRequest:
    """Read a request for a chat completion. Anything else in its body is not looked at. Raises Invalid."""
    agent = body.get("model")
    if not isinstance(agent, str) or not agent:
        raise Invalid("Name a model: GET /v1/models lists them.", "model", "missing_required_parameter")
    if body.get("n") not in (None, 1):
        raise Invalid("Only one choice is made: send n as 1, or not at all.", "n")
    if body.get("functions"):
        raise Invalid("Send tools in place of functions, which OpenAI has given up.", "functions")
    if body.get("modalities") is not None and "audio" in list_of(body["modalities"], "modalities", most=10):
        raise Invalid("Agents here answer with text alone.", "modalities")
    messages, instructions = _messages(body.get("messages"))
    return GatewayRequest(
        agent=agent,
        messages=messages,
        instructions=instructions,
        tools=_tools(body.get("tools")),
        parameters=_parameters(body),
        streams=flag_of(body, "stream"),
    )


def asks_for_usage(body: Json) -> bool:
    """Return whether the client wants the usage in a chunk of its own."""
    options = body.get("stream_options")
    return isinstance(options, Mapping) and options.get("include_usage") is True


def _messages(value: Any) -> tuple[list[Message], str]:
    found: list[Message] = []
    system = []
    for place, each in enumerate(list_of(value, "messages", most=MAX_MESSAGES)):
        param = f"messages.{place}"
        role = object_of(each, param).get("role")
        if role not in ROLES:
            raise Invalid(f"The role must be one of {', '.join(ROLES)}.", f"{param}.role")
        if role in ("system", "developer"):
            system.append(plain_text(each.get("content"), f"{param}.content", PARTS))
        else:
            found.append(_message(role, each, param))
    check_order(found, "messages")
    return found, "\n\n".join(filter(None, system))


def _message(role: str, each: Json, param: str) -> Message:
    if role == "user":
        return user_message(each.get("content"), f"{param}.content", PARTS)
    message: Message = {"role": role, "content": plain_text(each.get("content"), f"{param}.content", PARTS)}
    if role == "tool":
        return {"role": role, "tool_call_id": call_id_of(each.get("tool_call_id"), f"{param}.tool_call_id"), **message}
    if role == "assistant":
        message["content"] = message["content"] or plain_text(each.get("refusal"), f"{param}.refusal", PARTS) or None
        calls = [
            _call(call, f"{param}.tool_calls.{number}")
            for number, call in enumerate(list_of(each.get("tool_calls") or [], f"{param}.tool_calls", most=MAX_TOOLS))
        ]
        if calls:
            message["tool_calls"] = calls
    return message


def call_id_of(value: Any, param: str) -> str:
    """An id of a call, whatever vendor made it: one of other characters, or longer, is known by its hash, in the call
    and in its result alike. Raises Invalid."""
    if not isinstance(value, str) or not value.strip():
        raise Invalid("The id of a call is a text of at least one character.", param)
    return value if CALL_ID.match(value) else f"call_{sha256_hex(value)[:32]}"


def _call(call: Any, param: str) -> dict[str, Any]:
    fields = object_of(call, param)
    if fields.get("type", "function") != "function":
        raise Invalid("Only calls of functions are taken.", f"{param}.type")
    function = object_of(fields.get("function"), f"{param}.function")
    return tool_call(
        fields.get("id", f"call_{uuid4().hex}"), function.get("name"), function.get("arguments", "{}"), param
    )


def tool_call(id: Any, name: Any, arguments: Any, param: str) -> dict[str, Any]:
    """A call as chat completions have it, in a form that any provider takes. Raises Invalid."""
    written = Call("", text_of(name, f"{param}.name", most=200), text_of(arguments, f"{param}.arguments"))
    stored = stored_call(call_id_of(id, f"{param}.id"), written)
    return {
        "id": stored["id"],
        "type": "function",
        "function": {"name": stored["name"], "arguments": stored["arguments"]},
    }


def _tools(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    found = []
    for place, tool in enumerate(list_of(value, "tools", most=MAX_TOOLS)):
        if object_of(tool, f"tools.{place}").get("type") != "function":
            raise Invalid("Only tools of the type function are taken.", f"tools.{place}.type")
        found.append(tool_of(tool.get("function"), f"tools.{place}.function"))
    check_names(found)
    return found


def _parameters(body: Json) -> dict[str, Any]:
    """Read the parameters of each model call, by their names in `sessions/loop/model_calls/client_requests.py`."""
    found: dict[str, Any] = {name: number_of(body, name, *bounds) for name, bounds in NUMBERS.items()}
    limits = [number_of(body, name, 1, 10_000_000, whole=True) for name in ("max_completion_tokens", "max_tokens")]
    found["max_output_tokens"] = next((limit for limit in limits if limit is not None), None)
    found["seed"] = number_of(body, "seed", -(2**63), 2**63 - 1, whole=True)
    if body.get("reasoning_effort") is not None:
        found["reasoning_effort"] = effort_of(body["reasoning_effort"], "reasoning_effort")
    if body.get("parallel_tool_calls") is not None:
        found["parallel_tool_calls"] = flag_of(body, "parallel_tool_calls")
    if body.get("stop") is not None:
        stops = body["stop"] if isinstance(body["stop"], list) else [body["stop"]]
        found["stop"] = [text_of(each, "stop", most=1_000) for each in list_of(stops, "stop", most=4)]
    if body.get("response_format") is not None:
        found["response_format"] = _format(body["response_format"])
    if body.get("tool_choice") is not None:
        found["tool_choice"] = choice_of(body["tool_choice"])
    if body.get("verbosity") is not None:
        found["verbosity"] = text_of(body["verbosity"], "verbosity", most=20)
    return {name: value for name, value in found.items() if value is not None}


def _format(value: Any) -> dict[str, Any] | None:
    wanted = object_of(value, "response_format")
    kind = wanted.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise Invalid("The type must be text, json_object or json_schema.", "response_format.type")
    if kind == "text":
        return None
    if kind == "json_schema":
        return {"type": kind, "json_schema": object_of(wanted.get("json_schema"), "response_format.json_schema")}
    return {"type": kind}


def choice_of(value: Any) -> Any:
    """A choice of tools as chat completions have it. Raises Invalid."""
    if isinstance(value, str):
        if value not in ("auto", "none", "required"):
            raise Invalid("This must be auto, none, required, or a function.", "tool_choice")
        return value
    choice = object_of(value, "tool_choice")
    if choice.get("type") != "function":
        raise Invalid("Only the choice of a function is taken.", "tool_choice.type")
    name = object_of(choice.get("function"), "tool_choice.function").get("name")
    return {"type": "function", "function": {"name": text_of(name, "tool_choice.function.name", most=64)}}
