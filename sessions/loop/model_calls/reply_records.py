"""A model's reply as it is put on record: what the model said, what its call was made of, and what that cost."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from capabilities.choosing.pipeline.routing import is_routed
from capabilities.common.tokens import count_tokens
from capabilities.contract.wire import namespaces_in
from capabilities.language_models.providers.prices import cost_of
from sessions.loop.clients.attempts import Question
from sessions.loop.clients.replies import CALL_ID, Reply
from sessions.loop.clients.responses import found_in
from sessions.loop.clients.usage import Usage, priced_use
from sessions.loop.conversation.prefix import prefix_of, remembered
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.conversation.window import Conversation
from sessions.loop.model_calls.client_requests import own_arguments
from sessions.loop.model_calls.reserving import Admitted
from sessions.loop.model_calls.sent_tools import Carried
from sessions.loop.tools import execution
from sessions.models import ToolSet
from sessions.selection.routing import remembered_routing, routing_left
from sessions.turns.replies import ReplyRecord


def record_of(
    turn: RunningTurn,
    carried: Carried,
    talk: Conversation,
    admitted: Admitted,
    question: Question,
    reply: Reply,
    started_at: datetime,
) -> ReplyRecord:
    """Return the record of a reply, whole or stopped in the middle, to the question as it went out last. At most one
    query, for the organisation's own prices, where this process has not read them, and those of `prefix_of`."""
    sent = carried if question.adds_tools else replace(carried, line=None)
    prefix = prefix_of(turn, sent.declared, question.parts, tools_of=question.tools_of)
    marks = sent.line.marks if sent.line is not None else None
    answered = reply.text + reply.other_text + "".join(call.arguments for call in reply.calls)
    answer_tokens = count_tokens(answered, turn.model.tokenizer.encoding)
    usage = reply.usage or Usage(talk.tokens + sent.tokens, answer_tokens, is_estimated=True)
    cost = cost_of(turn.model, priced_use(usage), started_at, turn.registry_version)
    extras, found = _searched(reply, sent.declared)
    return ReplyRecord(
        started_at=started_at,
        text=reply.text,
        tool_calls=_stored_calls(turn, talk, reply),
        finish_reason=reply.finish_reason,
        origin=turn.model.origin,
        extras=json.dumps(extras, ensure_ascii=False) if extras else "",
        structured=found,
        input_tokens=usage.input,
        cached_tokens=usage.cached,
        cache_write_tokens=usage.cache_written,
        output_tokens=usage.output,
        reasoning_tokens=usage.reasoning,
        usage_estimated=usage.is_estimated,
        raw_usage=dict(usage.raw),
        cost=cost.nano if cost else None,
        price_source=cost.source if cost else "",
        tool_tokens=sent.tokens,
        result_tokens=talk.result_tokens,
        history_tokens=talk.history_tokens,
        answer_tokens=answer_tokens,
        all_tool_tokens=carried.all_tool_tokens,
        tool_set=carried.tool_set,
        declared_set=sent.declared if sent.line is not None else None,
        verdict_set=carried.verdict_set,
        load_count=carried.load_count,
        routing=dict(carried.routing),
        prompt_bytes=prefix.prompt_bytes,
        prefix_bytes=prefix.prefix_bytes,
        prompt=remembered(turn.row, prefix, carried.tool_ids, _left_for_routing(turn, carried, reply), marks),
        reserved=admitted.reserved,
    )


def _left_for_routing(turn: RunningTurn, carried: Carried, reply: Reply) -> dict[str, Any]:
    """Return the marks that the agent's next turn is routed by, empty where it is not routed. A quick question changes
    none of them."""
    if not is_routed(turn.row.agent):
        return {}
    if turn.row.without_tools:
        return routing_left(turn.row.session, turn.row.agent_id)
    calls, left = [call.name for call in reply.calls], carried.left_loaders
    return remembered_routing(turn.row, carried.routed, left_loaders=left, answer=reply.text, calls=calls)


def _searched(reply: Reply, declared: ToolSet) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the reply's extras, and what the provider found where it searched the tools of this set, of those in
    there; None where it did not search."""
    found = found_in(reply.extras)
    if found is None:
        return dict(reply.extras), None
    there = namespaces_in(declared.wire)
    return {**reply.extras, "tools": declared.pk}, {"found": [name for name in found if name in there]}


def _stored_calls(turn: RunningTurn, talk: Conversation, reply: Reply) -> list[dict[str, str]]:
    """The reply's calls as they are stored and sent again: ids unique in the conversation, names and arguments that any
    provider takes, those of a client's own tool under its own names. What the model really wrote is kept beside, under
    `raw_name` and `raw_arguments`."""
    taken = {call["id"] for message in talk.messages for call in message.get("tool_calls", ())}
    stored = []
    for call in reply.calls:
        call_id = call.id if CALL_ID.match(call.id) and call.id not in taken else f"call_{uuid4().hex}"
        taken.add(call_id)
        own = own_arguments(turn.row, call.name, call.arguments)
        stored.append(execution.stored_call(call_id, replace(call, arguments=own)))
    return stored
