"""LangChain's ChatOpenAI, with the loop that its users write around it."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.sessions.doors.gateway.clients.speaking import WEATHER, Shown, Task, answer_tasks


def answer(task: Task, shown: Shown) -> None:
    def weather(town: str) -> str:
        """Weather of a town."""
        shown.towns.append(town)
        return WEATHER

    chat = ChatOpenAI(
        base_url=task.base_url,
        api_key=SecretStr(task.token),
        model=task.model,
        max_retries=0,
        timeout=task.patience or 60,
        use_responses_api=task.api == "responses",
    )
    own = StructuredTool.from_function(weather, name=task.tool or "weather")
    model = chat.bind_tools([own]) if task.tool else chat
    messages: list[BaseMessage] = []
    for question in task.questions:
        messages.append(HumanMessage(question))
        talk(model, own, task, shown, messages)


def talk(
    model: Runnable[Any, AIMessage], own: StructuredTool, task: Task, shown: Shown, messages: list[BaseMessage]
) -> None:
    while True:
        if task.streams:
            whole: AIMessage | None = None
            for chunk in model.stream(messages):
                assert isinstance(chunk, AIMessageChunk)
                shown.text += chunk.text
                if task.leaves and shown.text:
                    return
                whole = chunk if whole is None else whole + chunk  # type: ignore[assignment]
            assert whole is not None
        else:
            whole = model.invoke(messages)
            shown.text += whole.text
        shown.tokens = whole.usage_metadata["total_tokens"] if whole.usage_metadata else 0
        messages.append(whole)
        if not whole.tool_calls:
            return
        messages += [ToolMessage(own.invoke(each["args"]), tool_call_id=each["id"]) for each in whole.tool_calls]


if __name__ == "__main__":
    answer_tasks(answer)
