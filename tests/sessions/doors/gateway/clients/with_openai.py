"""The openai SDK, with the loops that its users write around it."""

from __future__ import annotations

import json
from typing import Any

from openai import OpenAI

from tests.sessions.doors.gateway.clients.speaking import WEATHER, Shown, Task, answer_tasks

TOWN = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}


def answer(task: Task, shown: Shown) -> None:
    conversation: list[Any] = []
    with OpenAI(base_url=task.base_url, api_key=task.token, max_retries=0, timeout=task.patience or 60) as client:
        for question in task.questions:
            conversation.append({"role": "user", "content": question})
            (chat if task.api == "chat" else respond)(client, task, shown, conversation)


def chat(client: OpenAI, task: Task, shown: Shown, messages: list[Any]) -> None:
    asked: dict[str, Any] = {"model": task.model}
    if task.tool:
        asked["tools"] = [{"type": "function", "function": {"name": task.tool, "parameters": TOWN}}]
    while True:
        if task.streams:
            with client.chat.completions.stream(messages=messages, **asked) as stream:
                for event in stream:
                    shown.text += event.delta if event.type == "content.delta" else ""
                    if task.leaves and shown.text:
                        return
                whole: Any = stream.get_final_completion()
        else:
            whole = client.chat.completions.create(messages=messages, **asked)
            shown.text += whole.choices[0].message.content or ""
        shown.tokens = whole.usage.total_tokens
        message = whole.choices[0].message
        messages.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        if not message.tool_calls:
            return
        for each in message.tool_calls:
            shown.towns.append(json.loads(each.function.arguments)["town"])
            messages.append({"role": "tool", "tool_call_id": each.id, "content": WEATHER})


def respond(client: OpenAI, task: Task, shown: Shown, items: list[Any]) -> None:
    asked: dict[str, Any] = {"model": task.model}
    if task.tool:
        asked["tools"] = [{"type": "function", "name": task.tool, "parameters": TOWN, "strict": False}]
    while True:
        if task.streams:
            with client.responses.stream(input=items, **asked) as stream:
                for event in stream:
                    shown.text += event.delta if event.type == "response.output_text.delta" else ""
                    if task.leaves and shown.text:
                        return
                whole: Any = stream.get_final_response()
        else:
            whole = client.responses.create(input=items, **asked)
            shown.text += whole.output_text
        shown.tokens = whole.usage.total_tokens
        items += whole.output
        calls = [item for item in whole.output if item.type == "function_call"]
        if not calls:
            return
        for each in calls:
            shown.towns.append(json.loads(each.arguments)["town"])
            items.append({"type": "function_call_output", "call_id": each.call_id, "output": WEATHER})


if __name__ == "__main__":
    answer_tasks(answer)
