"""REST: the fields that say who gets tools, for the routes that add some."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from capabilities.catalogue.tools.recipients.writes import Recipients

#: Agents that one request may name.
MAX_AGENTS = 200


class RecipientsIn(serializers.Serializer[Any]):
    agents = serializers.ListField(
        child=serializers.CharField(max_length=63),
        max_length=MAX_AGENTS,
        default=list,
        help_text="Short names of agents that get it as their own, or that may load `toolkit` where that is given. "
        "Needs the right `agents`.",
    )
    toolkit = serializers.CharField(
        max_length=64,
        allow_blank=True,
        default="",
        help_text="Name of a toolkit that gets it. Needs the right `toolkits`.",
    )
    new_toolkit = serializers.CharField(
        max_length=64, allow_blank=True, default="", help_text="Name of one to make, in place of `toolkit`."
    )


def recipients_of(body: dict[str, Any]) -> Recipients:
    return Recipients(tuple(body["agents"]), body["toolkit"], body["new_toolkit"])
