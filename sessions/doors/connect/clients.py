"""The clients that the page knows: for each its blocks to copy, and what goes wrong with it.

A block is text in which `<v1>`, `<mcp>`, `<agent>`, `<server>` and `<token>` stand for values: see `blocks.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import models

from toolhub.tenants.models import Scope

#: Scopes of a client's token: opening sessions and asking, and nothing else.
SCOPES = (Scope.CHAT,)


class Protocol(models.TextChoices):
    """Protocol that a client speaks, and so what it gets here."""

    OPENAI = "openai", "Chat with an agent"
    MCP = "mcp", "Use the tools"


@dataclass(frozen=True)
class Block:
    """Text to copy, and where it goes. `language` is one of bash, javascript, json, python, text, toml, yaml."""

    title: str
    language: str
    text: str


@dataclass(frozen=True)
class Client:
    key: str
    name: str
    protocol: Protocol
    blocks: tuple[Block, ...]
    #: Pitfalls of its use, a sentence or two each; code stands between backticks.
    pitfalls: tuple[str, ...]


OPENAI_SDK = Client(
    "openai",
    "OpenAI SDK",
    Protocol.OPENAI,
    (
        Block("Install", "bash", "pip install openai"),
        Block(
            "Python",
            "python",
            """\
from openai import OpenAI

client = OpenAI(base_url="<v1>", api_key="<token>")
reply = client.chat.completions.create(
    model="<agent>",
    messages=[{"role": "user", "content": "What can you do for me?"}],
)
print(reply.choices[0].message.content)
""",
        ),
    ),
    (
        "`model` is the short name of an agent, not of a model. `client.models.list()` returns those that you may use.",
        "Each request stands alone: send the earlier messages along, or a header `X-Session-Id` of your own choice.",
        (
            "After a timeout or a fault of the server the SDK sends a request again, twice (`max_retries`). Each is a "
            "new turn, unless both carry the same `Idempotency-Key`: pass that header, or set `max_retries=0`."
        ),
    ),
)

LANGCHAIN = Client(
    "langchain",
    "LangChain",
    Protocol.OPENAI,
    (
        Block("Install", "bash", "pip install langchain-openai"),
        Block(
            "Python",
            "python",
            """\
from langchain_openai import ChatOpenAI

model = ChatOpenAI(
    model="<agent>",
    base_url="<v1>",
    api_key="<token>",
)
print(model.invoke("What can you do for me?").content)
""",
        ),
    ),
    (
        (
            "With the arguments `reasoning`, `text`, `include` or `truncation` it asks `/v1/responses` in place of "
            "`/v1/chat/completions`."
        ),
    ),
)

PYDANTIC_AI = Client(
    "pydantic-ai",
    "pydantic-ai",
    Protocol.OPENAI,
    (
        Block("Install", "bash", 'pip install "pydantic-ai-slim[openai]"'),
        Block(
            "Python",
            "python",
            """\
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url="<v1>", api_key="<token>")
agent = Agent(OpenAIChatModel("<agent>", provider=provider))
print(agent.run_sync("What can you do for me?").output)
""",
        ),
    ),
    (
        (
            "`OpenAIChatModel` asks `/v1/chat/completions`, `OpenAIResponsesModel` asks `/v1/responses`. A name "
            "such as `openai:…` means the second, at OpenAI’s own address: give the provider, as above."
        ),
        (
            "`run_stream` takes the first words for the answer, and asks no further: an agent with tools of its own is "
            "better run with `run`, or with `iter`."
        ),
    ),
)

VERCEL = Client(
    "vercel",
    "Vercel AI SDK",
    Protocol.OPENAI,
    (
        Block("Install", "bash", "npm install ai @ai-sdk/openai"),
        Block(
            "JavaScript, in a file that ends in .mjs",
            "javascript",
            """\
import { createOpenAI } from "@ai-sdk/openai";
import { generateText } from "ai";

const toolhub = createOpenAI({ baseURL: "<v1>", apiKey: "<token>" });
const { text } = await generateText({
  model: toolhub.chat("<agent>"),
  prompt: "What can you do for me?",
});
console.log(text);
""",
        ),
    ),
    (
        "`toolhub.chat(…)` asks `/v1/chat/completions`; `toolhub(…)` alone asks `/v1/responses`.",
        "The `textStream` of `streamText` ends in silence where a request fails: read `fullStream`, or give `onError`.",
        (
            "To leave its loop does not stop the turn: pass an `abortSignal`, and abort it. After a fault it asks "
            "again, twice, each a new turn: `maxRetries: 0`."
        ),
    ),
)

LLM = Client(
    "llm",
    "llm",
    Protocol.OPENAI,
    (
        Block("Keep the token", "bash", 'llm keys set toolhub --value "<token>"'),
        Block("Find the folder of its files", "bash", 'dirname "$(llm logs path)"'),
        Block(
            "In the file extra-openai-models.yaml of that folder",
            "yaml",
            """\
- model_id: <server>
  model_name: <agent>
  api_base: "<v1>"
  api_key_name: toolhub
""",
        ),
        Block("Ask", "bash", 'llm -m <server> "What can you do for me?"'),
    ),
    (
        "Without `api_key_name` llm sends no token, whatever other keys it has.",
        "It asks `/v1/chat/completions`; with the line `responses: true` it asks `/v1/responses`.",
        "In Python, to leave the loop of a response does not stop the turn: it goes on until the process ends.",
    ),
)

OPEN_WEBUI = Client(
    "open-webui",
    "Open WebUI",
    Protocol.OPENAI,
    (
        Block("Admin settings, Connections, OpenAI, Add connection: the URL", "text", "<v1>"),
        Block("The API key, on the same form", "text", "<token>"),
        Block(
            "Or in the environment of Open WebUI, before its first start",
            "bash",
            """\
OPENAI_API_BASE_URL=<v1>
OPENAI_API_KEY=<token>
""",
        ),
    ),
    (
        "Everybody who uses that Open WebUI asks with this token: with your rights, and in your name.",
        "Its models are the agents that you may use, by their short names; Model IDs on the form narrows them.",
        "In a container `localhost` is the container itself. Write `host.docker.internal` for this computer.",
    ),
)

CURL = Client(
    "curl",
    "curl",
    Protocol.OPENAI,
    (
        Block(
            "In a terminal",
            "bash",
            """\
curl -N "<v1>/chat/completions" \\
  -H "Authorization: Bearer <token>" \\
  -H "Content-Type: application/json" \\
  -d '{
    "model": "<agent>",
    "stream": true,
    "messages": [{"role": "user", "content": "What can you do for me?"}]
  }'
""",
        ),
        Block("The agents that you may use", "bash", 'curl "<v1>/models" -H "Authorization: Bearer <token>"'),
    ),
    ('Without `"stream": true` the answer comes when the turn has ended. Ctrl-C ends the turn too.',),
)

CODEX_MODEL = Client(
    "codex-model",
    "Codex, as its model",
    Protocol.OPENAI,
    (
        Block("In the shell that starts Codex", "bash", 'export TOOLHUB_TOKEN="<token>"'),
        Block(
            "In the file ~/.codex/toolhub.config.toml",
            "toml",
            """\
model = "<agent>"
model_provider = "toolhub"
web_search = "disabled"
agents.enabled = false
features.goals = false

[model_providers.toolhub]
name = "toolhub"
base_url = "<v1>"
env_key = "TOOLHUB_TOKEN"
wire_api = "responses"
""",
        ),
        Block("Start it", "bash", "codex --profile toolhub"),
    ),
    (
        '`wire_api = "chat"` was removed from Codex in February 2026: it speaks Responses alone.',
        (
            "`/v1/responses` takes functions alone. `web_search`, `agents.enabled` and `features.goals` turn off what "
            "Codex sends beside them. It sends the tools of its MCP servers otherwise too: turn these servers off "
            "(`enabled = false`), and give their tools to the agent here."
        ),
        (
            "Before version 0.134, Codex reads no file of a profile: write these lines at the top of "
            "`~/.codex/config.toml`, above every line in square brackets, and start `codex` alone."
        ),
    ),
)

CLAUDE_CODE = Client(
    "claude-code",
    "Claude Code",
    Protocol.MCP,
    (
        Block(
            "In a terminal",
            "bash",
            """\
claude mcp add --transport http <server> "<mcp>" \\
  --header "Authorization: Bearer <token>"
""",
        ),
        Block("See whether it is connected", "bash", "claude mcp list"),
    ),
    (
        (
            "A tool is called `mcp__<server>__` and its name there. One whose whole name has more than 128 characters "
            "is left out."
        ),
        "It is connected in the folder where you are, and in no other: add `--scope user` for all of them.",
        "Write no `${VARIABLE}` into a header of `.mcp.json`: some versions send it as it stands (claude-code#51581).",
    ),
)

CODEX = Client(
    "codex",
    "Codex",
    Protocol.MCP,
    (
        Block("In the shell that starts Codex", "bash", 'export TOOLHUB_TOKEN="<token>"'),
        Block(
            "In ~/.codex/config.toml",
            "toml",
            """\
[mcp_servers.<server>]
url = "<mcp>"
bearer_token_env_var = "TOOLHUB_TOKEN"
tool_timeout_sec = 300
""",
        ),
    ),
    (
        "Codex refuses `bearer_token`, a token in the file itself: it reads the variable’s value when it starts.",
        "It gives up a call after 60 seconds, if `tool_timeout_sec` says nothing else.",
        "It shortens names of tools to 64 characters, with a hash at the end.",
    ),
)

VS_CODE = Client(
    "vs-code",
    "VS Code",
    Protocol.MCP,
    (
        Block(
            "In .vscode/mcp.json of a folder, or by the command MCP: Open User Configuration",
            "json",
            """\
{
  "inputs": [
    {
      "type": "promptString",
      "id": "toolhub-token",
      "description": "Token of toolhub",
      "password": true
    }
  ],
  "servers": {
    "<server>": {
      "type": "http",
      "url": "<mcp>",
      "headers": { "Authorization": "Bearer ${input:toolhub-token}" }
    }
  }
}
""",
        ),
        Block("When it asks for the token", "text", "<token>"),
    ),
    (
        "One request to a model carries at most 128 tools there, of all servers together.",
        "It keeps the list of tools. MCP: Reset Cached Tools reads it again.",
    ),
)

CURSOR = Client(
    "cursor",
    "Cursor",
    Protocol.MCP,
    (
        Block(
            "In ~/.cursor/mcp.json",
            "json",
            """\
{
  "mcpServers": {
    "<server>": {
      "url": "<mcp>",
      "headers": { "Authorization": "Bearer <token>" }
    }
  }
}
""",
        ),
    ),
    (
        "Cursor reads every tool’s definition when it starts, and works best with at most 40, of all servers together.",
        "In `.cursor/mcp.json` of a project, which is shared, write `${env:TOOLHUB_TOKEN}` in place of the token.",
    ),
)

CLIENTS = (
    OPENAI_SDK, LANGCHAIN, PYDANTIC_AI, VERCEL, LLM, OPEN_WEBUI, CURL, CODEX_MODEL, CLAUDE_CODE, CODEX, VS_CODE, CURSOR,
)  # fmt: skip
BY_KEY = {client.key: client for client in CLIENTS}
