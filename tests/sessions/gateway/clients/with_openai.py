"""The openai SDK, with the loop that its users write around it."""

from __future__ import annotations

import json
from typing import Any

from openai import OpenAI

from tests.sessions.gateway.clients.speaking import QUESTION, WEATHER, Shown, Task, answer_tasks

TOWN = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}


def answer(task: Task, shown: Shown) -> None:
    asked: dict[str, Any] = {"model": task.model}
    if task.tool:
        asked["tools"] = [{"type": "function", "function": {"name": task.tool, "parameters": TOWN}}]
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    with OpenAI(base_url=task.base_url, api_key=task.token, max_retries=0) as client:
        while True:
            if task.streams:
                with client.chat.completions.stream(messages=messages, **asked) as stream:
                    for event in stream:
                        shown.text += event.delta if event.type == "content.delta" else ""
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


if __name__ == "__main__":
    answer_tasks(answer)
