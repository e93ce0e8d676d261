"""Dry runs: `?dry_run=true` on a write of the REST API is answered with the preview of the change, and changes nothing.

The preview is the room `sessions`' work: it is `Provided`. The write itself runs, and is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

from drf_spectacular.utils import OpenApiParameter, PolymorphicProxySerializer
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from toolhub.tenants.models import Membership
from toolhub.tenants.provided import Provided
from toolhub.tenants.rest.api import api_member
from toolhub.tenants.rest.wire import DRY_RUN

PARAMETER = OpenApiParameter(
    DRY_RUN, bool, description="`true`: nothing is changed; the answer is a preview of what would be."
)


@Provided
def preview_of(
    noun: str, named: Mapping[str, Any], body: Mapping[str, Any], write: Callable[[], Response], actor: Membership
) -> dict[str, Any]:
    """Preview the write of this noun, as `PreviewOut` describes it; `named` are the names in the address. Raises what
    the write raises."""
    raise NotImplementedError


class GroupOut(serializers.Serializer[Any]):
    members = serializers.ListField(child=serializers.CharField())
    gain = serializers.ListField(child=serializers.CharField(), help_text="Tools.")
    lose = serializers.ListField(child=serializers.CharField(), help_text="Tools.")


class RolePreviewOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    opens = serializers.ListField(child=serializers.CharField(), help_text="Tools.")
    closes = serializers.ListField(child=serializers.CharField(), help_text="Tools.")
    tokens = serializers.IntegerField(help_text="Of the tools that it opens, less those that it closes.")
    members = serializers.IntegerField(help_text="Who would have it.")
    given = serializers.IntegerField()
    taken = serializers.IntegerField()


class AgentPreviewOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    sends = serializers.ListField(child=serializers.CharField(), help_text="Tools, new at the start of a session.")
    no_longer_sends = serializers.ListField(child=serializers.CharField())
    can_load = serializers.ListField(child=serializers.CharField())
    can_no_longer_load = serializers.ListField(child=serializers.CharField())
    tokens_before = serializers.IntegerField(help_text="Of what a new session of yours sends first.")
    tokens_after = serializers.IntegerField()
    over_limit = serializers.IntegerField(help_text="Tools that do not fit into one request.")


class OverridePreviewOut(serializers.Serializer[Any]):
    tool = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()


class PreviewOut(serializers.Serializer[Any]):
    sentence = serializers.CharField(help_text="All of it, for people.")
    members = serializers.IntegerField(help_text="Who gain or lose a tool.")
    groups = GroupOut(many=True, help_text="The largest groups of members who gain and lose the same.")
    unchanged = serializers.IntegerField(help_text="Members whom it is about, and for whom nothing changes.")
    sessions = serializers.IntegerField(help_text="Live sessions whose next turn sends other tools.")
    sessions_not_looked_at = serializers.IntegerField(help_text="Live sessions beyond the 50 used last.")
    loads_dropped = serializers.IntegerField()
    roles = RolePreviewOut(many=True)
    agents = AgentPreviewOut(many=True, help_text="The first of those that change.")
    overrides = OverridePreviewOut(many=True, help_text="The first of the tools that stay, with other overrides.")


def with_dry_run(noun: str) -> Callable[[Callable[..., Response]], Callable[..., Response]]:
    """Decorate the method of a view that writes. `noun` is the kind of row, as `sessions.insight.previews` names it."""

    def wrap(write: Callable[..., Response]) -> Callable[..., Response]:
        @wraps(write)
        def handle(view: Any, request: Request, **named: Any) -> Response:
            if not _is_asked(request):
                return write(view, request, **named)
            actor = api_member(request)
            body = request.data if isinstance(request.data, dict) else {}
            return Response(preview_of(noun, named, body, partial(write, view, request, **named), actor))

        handle.has_dry_run = True  # type: ignore[attr-defined]
        schema = handle.kwargs["schema"]  # type: ignore[attr-defined]
        handle.kwargs = {"schema": _described(schema)}  # type: ignore[attr-defined]
        return handle

    return wrap


def _is_asked(request: Request) -> bool:
    text = request.query_params.get(DRY_RUN)
    if text not in (None, "true", "false", "1", "0"):
        raise ValidationError({DRY_RUN: "It is true or false."}, "invalid")
    return text in ("true", "1")


def _described(schema: Any) -> Any:
    """The schema of the method, with the parameter and the preview as another answer."""

    class WithDryRun(schema):  # type: ignore[misc]
        def get_override_parameters(self) -> list[Any]:
            return [*super().get_override_parameters(), PARAMETER]

        def get_response_serializers(self) -> Any:
            found = super().get_response_serializers()
            if isinstance(found, dict):
                return {200: PreviewOut, **found}
            name = getattr(found, "__name__", type(found).__name__).removesuffix("Out")
            return PolymorphicProxySerializer(f"{name}OrPreview", [found, PreviewOut], None, many=False)

    return WithDryRun
