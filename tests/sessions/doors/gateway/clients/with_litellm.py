"""LiteLLM as a client, with the loops that its users write around it. It runs in an environment of its own."""

from __future__ import annotations

import json
from typing import Any

import litellm

from tests.sessions.doors.gateway.clients.speaking import WEATHER, Shown, Task, answer_tasks

TOWN = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}


def answer(task: Task, shown: Shown) -> None:
    asked = {
        "model": f"openai/{task.model}",
        "api_base": task.base_url,
        "api_key": task.token,
        "max_retries": 0,
        "timeout": task.patience or 60,
        "stream": task.streams,
    }
    conversation: list[Any] = []
    for question in task.questions:
        conversation.append({"role": "user", "content": question})
        (chat if task.api == "chat" else respond)(dict(asked), task, shown, conversation)


def chat(asked: dict[str, Any], task: Task, shown: Shown, messages: list[Any]) -> None:
    if task.tool:
        asked["tools"] = [{"type": "function", "function": {"name": task.tool, "parameters": TOWN}}]
    while True:
        whole: Any = litellm.completion(messages=messages, **asked)
        if task.streams:
            chunks = []
            for chunk in whole:
                chunks.append(chunk)
                shown.text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                if task.leaves and shown.text:
                    return
            whole = litellm.stream_chunk_builder(chunks)
        else:
            shown.text += whole.choices[0].message.content or ""
        shown.tokens = whole.usage.total_tokens
        message = whole.choices[0].message
        messages.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        if not message.tool_calls:
            return
        for each in message.tool_calls:
            shown.towns.append(json.loads(each.function.arguments)["town"])
            messages.append({"role": "tool", "tool_call_id": each.id, "content": WEATHER})


def respond(asked: dict[str, Any], task: Task, shown: Shown, items: list[Any]) -> None:
    if task.tool:
        asked["tools"] = [{"type": "function", "name": task.tool, "parameters": TOWN}]
    while True:
        whole: Any = litellm.responses(input=items, **asked)
        if task.streams:
            for event in whole:
                shown.text += event.delta if event.type == "response.output_text.delta" else ""
                if task.leaves and shown.text:
                    return
            whole = whole.completed_response.response
        else:
            shown.text += whole.output_text
        shown.tokens = whole.usage.total_tokens
        items += [item.model_dump(exclude_none=True) for item in whole.output]
        calls = [item for item in whole.output if item.type == "function_call"]
        if not calls:
            return
        for each in calls:
            shown.towns.append(json.loads(each.arguments)["town"])
            items.append({"type": "function_call_output", "call_id": each.call_id, "output": WEATHER})


if __name__ == "__main__":
    answer_tasks(answer)
