"""OpenAI's Agents SDK with its models for chat completions and for responses. It runs in an environment of its own."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import (
    Agent,
    ItemHelpers,
    MessageOutputItem,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from tests.sessions.doors.gateway.clients.speaking import WEATHER, Shown, Task, answer_tasks

MODELS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


def answer(task: Task, shown: Shown) -> None:
    asyncio.run(_answer(task, shown))


async def _answer(task: Task, shown: Shown) -> None:
    def weather(town: str) -> str:
        """Weather of a town."""
        shown.towns.append(town)
        return WEATHER

    async with AsyncOpenAI(base_url=task.base_url, api_key=task.token, max_retries=0) as client:
        tools = [function_tool(weather, name_override=task.tool)] if task.tool else []
        agent = Agent("Weather", model=MODELS[task.api](task.model, openai_client=client), tools=tools)
        conversation: list[Any] = []
        for question in task.questions:
            conversation.append({"role": "user", "content": question})
            conversation = await _talk(agent, conversation, task, shown)


async def _talk(agent: Agent[Any], conversation: list[Any], task: Task, shown: Shown) -> list[Any]:
    """The conversation with what came of it."""
    if not task.streams:
        async with asyncio.timeout(task.patience):
            run: Any = await Runner.run(agent, conversation)
        said = [item for item in run.new_items if isinstance(item, MessageOutputItem)]
        shown.text += "".join(map(ItemHelpers.text_message_output, said))
    else:
        run = Runner.run_streamed(agent, conversation)
        async for event in run.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                shown.text += event.data.delta
            if task.leaves and shown.text:
                run.cancel()
                return []
    shown.tokens = run.raw_responses[-1].usage.total_tokens
    return list(run.to_input_list())


if __name__ == "__main__":
    set_tracing_disabled(True)
    answer_tasks(answer)
