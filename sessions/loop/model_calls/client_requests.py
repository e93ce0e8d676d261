"""Settings of model calls that a gateway client sends beside its message, and tools that the client runs itself.

The tools go out behind ours. They count in the model's limit and pass the policies, as tools of the category CATEGORY
that send data out; they give nobody a right, for the client runs them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from capabilities.choosing.pipeline.policies import policies_at, read_policies
from capabilities.contract.rendering import rendered_wire, restored, schema_with_other_names
from capabilities.contract.wire import canonical_json
from capabilities.language_models.providers.resolve import ResolvedModel
from capabilities.models import Dialect
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.model_calls.admission import TurnFailed
from sessions.models import Step, StepStatus, Turn, name_of
from toolhub.bounded_json import load_json

#: Category of the tools that clients bring, in policies: `group:client`.
CATEGORY = "client"
#: Fields of a request that go to the model as they are, with what each is called in the dialect `responses`; one that
#: is missing there is not sent in it.
PASSED_ON: Mapping[str, str] = {
    "top_p": "top_p",
    "stop": "",
    "seed": "",
    "presence_penalty": "",
    "frequency_penalty": "",
    "logit_bias": "",
}
#: Fields that go to the model too, in place of a setting of the agent or the model.
TAKES_THE_PLACE = ("temperature", "reasoning_effort", "parallel_tool_calls")
#: Where the two dialects differ: `ask_for` makes one of the other.
DIFFERENT = ("response_format", "tool_choice", "verbosity")
#: Tokens of an answer at most.
OUTPUT_LIMIT = "max_output_tokens"


@dataclass(frozen=True)
class ClientTool:
    """A tool of a client, as far as policies look at one."""

    name: str
    category: str = CATEGORY
    effect: str = "external"


def as_asked(model: ResolvedModel, turn: Turn) -> ResolvedModel:
    """The model with what the turn's client asks of it, and without the places that the client's tools take in its
    limit. Raises TurnFailed `too_many_tools` where it has fewer."""
    asked = turn.asked
    if asked is None:
        return model
    if len(asked.tools) > model.tool_limit:
        few = f"The request brings {len(asked.tools)} tools, and {model.name} takes {model.tool_limit}: send fewer."
        raise TurnFailed("too_many_tools", few)
    wanted = {name: asked.parameters[name] for name in TAKES_THE_PLACE if name in asked.parameters}
    if asked.parameters.get(OUTPUT_LIMIT, model.max_output_tokens) < model.max_output_tokens:
        wanted[OUTPUT_LIMIT] = asked.parameters[OUTPUT_LIMIT]
    return replace(model, tool_limit=model.tool_limit - len(asked.tools), by_client=frozenset(wanted), **wanted)


def asked_for(turn: Turn, dialect: Dialect, *, is_first: bool) -> dict[str, Any]:
    """Return the fields that a model call carries because the turn's client asks for them, under this dialect's names.

    A choice of tools that must be called counts for the turn's first call alone (`is_first`): it would never end else.
    """
    parameters = turn.asked.parameters if turn.asked is not None else {}
    choice = parameters.get("tool_choice")
    if choice is not None and not is_first and choice not in ("auto", "none"):
        parameters = {name: value for name, value in parameters.items() if name != "tool_choice"}
    if dialect == Dialect.CHAT:
        return {name: value for name, value in parameters.items() if name in PASSED_ON or name in DIFFERENT}
    passed_on = {new: parameters[name] for name, new in PASSED_ON.items() if new and name in parameters}
    return passed_on | _of_responses(parameters)


def _of_responses(parameters: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    text: dict[str, Any] = {}
    if wanted := parameters.get("response_format"):
        text["format"] = _flat(wanted, "json_schema")
    if "verbosity" in parameters:
        text["verbosity"] = parameters["verbosity"]
    if text:
        found["text"] = text
    if choice := parameters.get("tool_choice"):
        found["tool_choice"] = choice if isinstance(choice, str) else _flat(choice, "function")
    return found


def _flat(wanted: Mapping[str, Any], inner: str) -> dict[str, Any]:
    """`{"type": ..., inner: {...}}` of chat completions, as responses have it: without the level in the middle."""
    return {"type": wanted["type"], **wanted.get(inner, {})}


def client_tools(turn: RunningTurn) -> Sequence[Mapping[str, Any]]:
    """Definitions of the tools that the turn's client brought, as the turn's model gets them, without those that its
    provider refused. No query for other turns."""
    definitions = turn.row.asked.tools if turn.row.asked is not None else ()
    accepted = [tool for tool in definitions if name_of(tool) not in turn.refused_tools]
    return [json.loads(rendered_wire(canonical_json(tool), turn.model.schema_rules)) for tool in accepted]


def own_arguments(turn: Turn, name: str, arguments: str) -> str:
    """The arguments of a call, as text, under the names of the schema of the client's tool that is called; as they are,
    where it is none of the client's, or no name went out as another one."""
    definitions = turn.asked.tools if turn.asked is not None else ()
    tool = next((each for each in definitions if name_of(each) == name), None)
    schema = schema_with_other_names(canonical_json(tool["function"].get("parameters", {}))) if tool else None
    if schema is None:
        return arguments
    try:
        return json.dumps(restored(load_json(arguments), schema), ensure_ascii=False)
    except (ValueError, RecursionError):  # the client reads what the model wrote
        return arguments


def check_client_tools(turn: RunningTurn, taken: Iterable[str]) -> None:
    """Raise TurnFailed where a tool of the turn's client may not be sent: `tool_name_taken` where it has the name of
    one of ours (`taken`), and `tool_not_allowed` where a policy keeps it out. One query where this process does not
    know the organisation's policies."""
    tools = [ClientTool(name_of(tool)) for tool in client_tools(turn)]
    if not tools:
        return
    names = set(taken)
    if clash := [tool.name for tool in tools if tool.name in names]:
        raise TurnFailed("tool_name_taken", f"{clash[0]} is the name of a tool of this agent: give yours another.")
    policies = read_policies() if turn.registry_version is None else policies_at(turn.registry_version)
    for tool in tools:
        if reason := policies.why_not(tool, turn.model.provider.public_id):
            raise TurnFailed("tool_not_allowed", f"The tool {tool.name} may not be sent: {reason}.")


def check_choice(turn: RunningTurn, sent: Iterable[str]) -> None:
    """Raise TurnFailed `tool_choice_not_sent` where the turn's client wants a tool called that is neither its own nor
    one of ours that are sent. No query."""
    choice = turn.row.asked.parameters.get("tool_choice") if turn.row.asked is not None else None
    if not isinstance(choice, Mapping):
        return
    name = name_of(choice)
    if name not in {*sent, *map(name_of, client_tools(turn))}:
        raise TurnFailed("tool_choice_not_sent", f"No tool {name} is sent with this message: it cannot be chosen.")


def left_to_client(turn: Turn, reply: Step, calls: Iterable[Step]) -> list[Step]:
    """Return the calls of a reply that the turn's client runs and that nobody answered; no call that the model makes
    through a tool of ours, whatever its name. A reply that was cut off in the middle has none."""
    if turn.asked is None or not turn.asked.tools or reply.finish_reason == "length":
        return []
    open_ones = [call for call in calls if call.is_unanswered or call.status == StepStatus.RETURNED]
    return [call for call in open_ones if call.tool_name in turn.asked.tool_names and not call.called_through]
