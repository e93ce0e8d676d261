"""Servers that refuse as vendors do: what each wants is checked before its script goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from tests.scripted_openai import Json, Raw, Reply, Say, Script

#: What a vendor finds wrong with a request at this path: its answer, or None where the script goes on.
Check = Callable[[str, Json], Raw | None]


def refusal(message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> Raw:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Raw(json.dumps({"error": error}).encode(), status, {"Content-Type": "application/json"})


def openai_with_reasoning(path: str, request: Json) -> Raw | None:
    """gpt-5.6: no tools in chat completions while it reasons; a call whose thoughts are missing is refused."""
    if path == "/chat/completions":
        if "max_tokens" in request:
            return refusal(
                "Unsupported parameter: 'max_tokens' is not supported with this model. "
                "Use 'max_completion_tokens' instead.",
                param="max_tokens",
                code="unsupported_parameter",
            )
        if request.get("tools"):
            return refusal(
                "Function tools with reasoning_effort are not supported for gpt-5.6-terra in /v1/chat/completions. "
                "To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
                param="reasoning_effort",
            )
        return None
    if request.get("store") is not False or "reasoning.encrypted_content" not in request.get("include", ()):
        return refusal("This organization keeps nothing.", param="store")
    for before, item in zip([{}, *request["input"]], request["input"], strict=False):
        if (
            item.get("type") == "function_call"
            and "id" in item
            and before.get("type")
            not in (
                "reasoning",
                "function_call",
                "message",
            )
        ):
            return refusal(
                f"Item '{item['id']}' of type 'function_call' was provided without its required 'reasoning' item."
            )
    return None


def openai_with_added_tools(path: str, request: Json) -> Raw | None:
    """OpenAI in Responses: tools may be added by items of the input, each tool once, and a call needs its tool: in the
    default namespace, or in the one that it says."""
    if path != "/responses":
        return refusal("Use /v1/responses.", param="tools")
    entries = request.get("tools", ())
    functions = [entry for entry in entries if entry["type"] == "function"]
    spaces = {entry["name"]: entry["tools"] for entry in entries if entry["type"] == "namespace"}
    if any(tool.get("defer_loading") for tools in (functions, *spaces.values()) for tool in tools) and not any(
        entry["type"] == "tool_search" for entry in entries
    ):
        return refusal("Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search.", param="tools")
    declared = [tool["name"] for tools in (functions, *spaces.values()) for tool in tools]
    namespaces: dict[str, str | None] = {tool["name"]: None for tool in functions}
    namespaces |= {tool["name"]: name for name, tools in spaces.items() for tool in tools}
    for item in request["input"]:
        if item.get("type") == "additional_tools":
            if item["role"] != "developer":
                return refusal("Only the role developer may add tools.", param="input")
            declared += [tool["name"] for tool in item["tools"]]
            namespaces |= {tool["name"]: tool["name"] for tool in item["tools"]}
        if item.get("type") == "tool_search_output" and any(entry not in entries for entry in item["tools"]):
            return refusal("The output of a tool search has tools that are not declared.", param="input")
        if item.get("type") == "function_call" and namespaces.get(item["name"]) != item.get("namespace"):
            return refusal(
                f"Missing namespace for function_call '{item['name']}'. It does not exist in the default namespace.",
                param="input",
            )
    twice = sorted({name for name in declared if declared.count(name) > 1})
    return refusal(f"Tools are declared more than once: {', '.join(twice)}.", param="tools") if twice else None


def knows_no_tool_search(path: str, request: Json) -> Raw | None:
    """A server that takes tools in the middle of a conversation, and has no search of its own."""
    if any(entry["type"] != "function" for entry in request.get("tools", ())):
        return refusal("Unknown tool type 'tool_search': supported types are 'function'.", param="tools")
    return openai_with_added_tools(path, request)


def knows_no_added_tools(path: str, request: Json) -> Raw | None:
    """A server that speaks Responses, and never heard of such items."""
    if any(item.get("type") == "additional_tools" for item in request.get("input", ())):
        return refusal(
            "Invalid value: 'additional_tools'. Supported values are: 'message', 'function_call', 'reasoning'."
        )
    return None


def gemini(path: str, request: Json) -> Raw | None:
    """Gemini 3: the first call of each reply wants its thought signature back."""
    if path != "/chat/completions":
        return refusal("Not found.", status=404)
    for place, message in enumerate(request["messages"]):
        calls = message.get("tool_calls") or []
        if calls and not calls[0].get("extra_content", {}).get("google", {}).get("thought_signature"):
            return refusal(
                f"Function call is missing a thought_signature in functionCall parts. Message {place}, "
                f"function call `{calls[0]['function']['name']}`."
            )
    return None


def deepseek(path: str, request: Json) -> Raw | None:
    """Thinking mode: replies with calls want their thoughts back; there is no other dialect."""
    if path != "/chat/completions":
        return refusal("Not found.", status=404)
    for message in request["messages"]:
        if message.get("tool_calls") and "reasoning_content" not in message:
            return refusal("The `reasoning_content` in the thinking mode must be passed back to the API.")
    return None


def without_max_tokens(path: str, request: Json) -> Raw | None:
    """A server that knows the newer name of the limit only."""
    if "max_tokens" in request:
        return refusal("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", param="max_tokens")
    return None


def without_stream_options(path: str, request: Json) -> Raw | None:
    """A server with strict requests, which says so as FastAPI does."""
    if "stream_options" in request:
        found = {"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}
        return Raw(json.dumps({"detail": [found]}).encode(), 422, {"Content-Type": "application/json"})
    return None


def with_a_small_limit(path: str, request: Json) -> Raw | None:
    """A model whose replies are short."""
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        if request.get(name, 0) > 4096:
            return refusal(
                f"{name} is too large: {request[name]}. This model supports at most 4096 completion tokens.",
                param=name,
                code="invalid_value",
            )
    return None


def takes_all(path: str, request: Json) -> Raw | None:
    return None


def answering(check: Check, path: Callable[[], str], *replies: Reply) -> Script:
    """A script for any number of requests: those that the vendor refuses take no reply away."""
    left: Iterator[Reply] = iter(replies)

    def answer(request: Json) -> Reply:
        return check(path(), request) or next(left, Say("OK."))

    return answer
