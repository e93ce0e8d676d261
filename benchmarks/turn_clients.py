"""The same turn without the service: two model calls and one tool call, in a process of its own.

    python benchmarks/turn_clients.py KIND ADDRESS-OF-THE-MODEL

KIND is `bare` (a loop with the openai SDK), `agents` (openai-agents) or `pydantic` (pydantic-ai); the last two are run
by the Python of an environment that has them, so this file imports nothing of ours. Each line on standard input is
"TOOLS TURNS"; each is answered with the CPU milliseconds of one such turn, as JSON. Nothing is stored. Each library is
used as its documentation says, with tracing off, one agent for all turns, and whole replies, which cost it less than
streamed ones.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
#: Runs so many turns.
Turns = Callable[[int], None]

PROMPT = "You keep the accounts."
MESSAGE = "Add 42 to account 0."


def result_of(amount: int) -> str:
    return json.dumps({"sum": amount, "currency": "EUR", "account": 0, "note": ""})


def bare(address: str, tools: Any) -> Turns:
    import openai  # noqa: PLC0415 -- one library a process

    client = openai.OpenAI(base_url=address, api_key="benchmark", max_retries=0)

    def turn() -> str:
        messages: list[Any] = [{"role": "system", "content": PROMPT}, {"role": "user", "content": MESSAGE}]
        while True:
            asked: Any = client.chat.completions.create(model="scripted", messages=messages, tools=tools)
            message = asked.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return str(message.content)
            for call in message.tool_calls:
                content = result_of(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})

    return lambda count: check([turn() for _ in range(count)])


def agents(address: str, tools: list[Json]) -> Turns:
    import agents as library  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
    import openai  # noqa: PLC0415

    library.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=address, api_key="benchmark", max_retries=0)

    async def invoke(context: Any, arguments: str) -> str:
        return result_of(**json.loads(arguments))

    functions = [
        library.FunctionTool(
            name=tool["function"]["name"],
            description=tool["function"]["description"],
            params_json_schema=tool["function"]["parameters"],
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )
        for tool in tools
    ]
    model = library.OpenAIChatCompletionsModel(model="scripted", openai_client=client)
    agent = library.Agent(name="Accounts", instructions=PROMPT, model=model, tools=functions)

    async def turns(count: int) -> None:
        check([(await library.Runner.run(agent, MESSAGE)).final_output for _ in range(count)])

    return in_one_loop(turns)


def pydantic(address: str, tools: list[Json]) -> Turns:
    from pydantic_ai import Agent, Tool  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
    from pydantic_ai.models.openai import OpenAIChatModel  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
    from pydantic_ai.providers.openai import OpenAIProvider  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

    async def add(amount: int, currency: str = "EUR", note: str = "") -> str:
        return result_of(amount)

    functions = [
        Tool.from_schema(add, tool["function"]["name"], tool["function"]["description"], tool["function"]["parameters"])
        for tool in tools
    ]
    model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=address, api_key="benchmark"))
    agent = Agent(model, instructions=PROMPT, tools=functions)

    async def turns(count: int) -> None:
        check([(await agent.run(MESSAGE)).output for _ in range(count)])

    return in_one_loop(turns)


def in_one_loop(turns: Callable[[int], Any]) -> Turns:
    loop = asyncio.new_event_loop()
    return lambda count: loop.run_until_complete(turns(count))


def check(answers: list[Any]) -> None:
    if any("42" not in str(answer) for answer in answers):
        raise SystemExit(f"A turn ended with another answer: {answers}")


def main() -> None:
    kind, address = sys.argv[1:]
    made: dict[int, Turns] = {}
    for line in sys.stdin:
        count, turns = (int(word) for word in line.split())
        if count not in made:
            with urllib.request.urlopen(f"{address.removesuffix('/v1')}/tools/{count}") as response:
                tools = json.load(response)
            made[count] = {"bare": bare, "agents": agents, "pydantic": pydantic}[kind](address, tools)
            made[count](3)
        begun = time.process_time()
        made[count](turns)
        print(json.dumps((time.process_time() - begun) * 1000 / turns), flush=True)


if __name__ == "__main__":
    main()
