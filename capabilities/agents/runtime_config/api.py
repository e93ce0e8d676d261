"""REST: runtime settings of each layer, as they were asked for, and what is in force for one tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.agents.runtime_config.queries import (
    ResolvedTool,
    ShownLayer,
    chosen,
    layer_or_404,
    own_settings,
    resolved_tool,
    shown_layer,
    shown_values,
    spec_or_404,
)
from capabilities.agents.runtime_config.writes import LayerOf, clear_runtime_config, document_of, set_runtime_config
from capabilities.common.api import refusals
from capabilities.contract.knobs import SHARED_KNOBS, plain
from capabilities.models import RuntimeConfig, RuntimeLayer
from toolhub.tenants.models import Right
from toolhub.tenants.rest.api import api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, only_parameters, page

NAMED = ("agent", "provider", "toolkit")
PARAMETERS = [
    OpenApiParameter("agent", str, description="Short name of the agent that calls."),
    OpenApiParameter("provider", str, description="Short name; left out: the agent's own."),
    OpenApiParameter("toolkit", str, description="Name of the toolkit that brings the tool."),
]


@extend_schema_field({"type": "number"})
class NumberField(serializers.JSONField):
    """Number as it was written: what is no number is refused with its place, and what is out of range is clamped."""


@extend_schema_field({"type": "object", "additionalProperties": {"type": "object"}})
class ToolsField(serializers.JSONField):
    """Knobs by pattern."""


class RuntimeConfigIn(serializers.Serializer[Any]):
    profile = serializers.CharField(
        max_length=40, allow_blank=True, allow_null=True, required=False, help_text="Such as zeus."
    )
    result_context_share_ratio = NumberField(
        required=False, allow_null=True, help_text=SHARED_KNOBS["result_context_share_ratio"].help
    )
    result_min_chars = NumberField(required=False, allow_null=True, help_text=SHARED_KNOBS["result_min_chars"].help)
    tools = ToolsField(
        required=False, allow_null=True, help_text="{pattern: {knob: value}}; the more specific pattern counts."
    )


class NoteOut(serializers.Serializer[Any]):
    where = serializers.CharField()
    text = serializers.CharField()
    kind = serializers.CharField(help_text="`clamped`, `malformed` (it says nothing), ...")


class RuntimeConfigOut(serializers.Serializer[ShownLayer]):
    layer = serializers.SerializerMethodField(help_text="`organisation`, `provider` or `agent`.")
    slug = serializers.SerializerMethodField(help_text="Of the provider or agent; else empty.")
    values = serializers.DictField(help_text="As they were asked for.")
    notes = NoteOut(many=True, help_text="What of them counts otherwise than it was asked for.")

    def get_layer(self, shown: ShownLayer) -> str:
        return str(shown.layer.kind)

    def get_slug(self, shown: ShownLayer) -> str:
        row = shown.layer.provider or shown.layer.agent
        return row.slug if row is not None else ""


class SayingOut(serializers.Serializer[Any]):
    layer = serializers.CharField()
    pattern = serializers.CharField()
    asked = serializers.JSONField()
    note = serializers.CharField(source="read.note")


class KnobOut(serializers.Serializer[Any]):
    name = serializers.CharField(source="knob.name")
    unit = serializers.CharField(source="knob.unit")
    asked = serializers.JSONField(help_text="By the innermost layer that says anything.")
    in_force = serializers.SerializerMethodField()
    layer = serializers.CharField(help_text="The one whose value is in force.")
    why = serializers.CharField(help_text="Why what is in force is not what was asked for; else empty.")
    layers = SayingOut(source="layer_settings", many=True, help_text="From the outermost to the innermost.")

    def get_in_force(self, knob: Any) -> Any:
        return plain(knob.in_force)


class ResolvedToolOut(serializers.Serializer[ResolvedTool]):
    tool = serializers.CharField(source="spec.name")
    agent = serializers.CharField(source="chosen.agent.slug", default=None, allow_null=True)
    provider = serializers.CharField(source="chosen.provider.slug", default=None, allow_null=True)
    toolkit = serializers.CharField(source="chosen.line.toolkit.name", default=None, allow_null=True)
    knobs = KnobOut(source="resolved.knobs", many=True)


class RuntimeConfigList(APIView):
    @extend_schema(
        operation_id="runtime_config_list",
        summary="Runtime settings",
        parameters=PAGE_PARAMETERS,
        responses=paged(RuntimeConfigOut),
    )
    def get(self, request: Request) -> Response:
        """The layers that say anything. Needs the right `policies`."""
        api_member(request, right=Right.POLICIES)
        return Response(page(request, own_settings(), "id", _row))


class _Layer(APIView):
    """One layer; a layer that says nothing is there too, and empty."""

    kind: RuntimeLayer

    def _layer(self, slug: str) -> LayerOf:
        return layer_or_404(self.kind, slug)

    def _get(self, request: Request, slug: str) -> Response:
        api_member(request, right=Right.POLICIES)
        only_parameters(request)
        return Response(RuntimeConfigOut(shown_layer(self._layer(slug))).data)

    def _write(self, request: Request, slug: str, *, is_part: bool) -> Response:
        member = api_member(request, right=Right.POLICIES)
        layer = self._layer(slug)
        values: Any = checked(RuntimeConfigIn, request)
        if is_part:
            values = merged(document_of(layer.stored()), values)
        with refusals():
            set_runtime_config(layer, values, actor=member)
        return Response(RuntimeConfigOut(shown_layer(layer)).data)

    def _delete(self, request: Request, slug: str) -> Response:
        member = api_member(request, right=Right.POLICIES)
        clear_runtime_config(self._layer(slug), actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


def merged(stored: Any, part: Any) -> Any:
    """A JSON merge patch (RFC 7396): null takes out."""
    if not isinstance(part, Mapping):
        return part
    found = dict(stored) if isinstance(stored, Mapping) else {}
    for name, value in part.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def _described(kind: RuntimeLayer, title: str) -> type[APIView]:
    """The view of a kind of layer, with an operation of its own for each method."""

    class View(_Layer):
        @extend_schema(
            operation_id=f"runtime_config_{kind}_read",
            summary=f"Runtime settings of {title}",
            responses=RuntimeConfigOut,
        )
        def get(self, request: Request, slug: str = "") -> Response:
            """Its own settings, as they were asked for. Needs the right `policies`."""
            return self._get(request, slug)

        @extend_schema(
            operation_id=f"runtime_config_{kind}_set",
            summary=f"Set the runtime settings of {title}",
            request=RuntimeConfigIn,
            responses=RuntimeConfigOut,
        )
        def put(self, request: Request, slug: str = "") -> Response:
            """Replace all settings of the layer. Needs the right `policies`."""
            return self._write(request, slug, is_part=False)

        @extend_schema(
            operation_id=f"runtime_config_{kind}_update",
            summary=f"Change the runtime settings of {title}",
            request=RuntimeConfigIn,
            responses=RuntimeConfigOut,
        )
        def patch(self, request: Request, slug: str = "") -> Response:
            """Change the settings; what is left out stays, null takes a pattern or a knob out. Needs the right
            `policies`."""
            return self._write(request, slug, is_part=True)

        @extend_schema(
            operation_id=f"runtime_config_{kind}_clear",
            summary=f"Remove the runtime settings of {title}",
            responses={204: None},
        )
        def delete(self, request: Request, slug: str = "") -> Response:
            """Back to what the layers around it say. Needs the right `policies`."""
            return self._delete(request, slug)

    View.kind = kind
    View.__name__ = f"RuntimeConfigOf{kind.title()}"
    return View


OrganisationConfig = _described(RuntimeLayer.ORGANISATION, "the organisation")
ProviderConfig = _described(RuntimeLayer.PROVIDER, "a provider")
AgentConfig = _described(RuntimeLayer.AGENT, "an agent")


class ResolvedToolView(APIView):
    @extend_schema(
        operation_id="runtime_config_tool",
        summary="Runtime settings in force for a tool",
        parameters=PARAMETERS,
        responses=ResolvedToolOut,
    )
    def get(self, request: Request, name: str) -> Response:
        """Each knob: asked for, in force, whose value that is and why. Needs the right `policies`."""
        api_member(request, right=Right.POLICIES)
        only_parameters(request, *NAMED)
        asked = {each: request.query_params.get(each, "")[:64] for each in NAMED}
        spec = spec_or_404(name)
        with refusals():
            found = chosen(**asked, tool=name)
        return Response(ResolvedToolOut(resolved_tool(spec, found)).data)


def _row(row: RuntimeConfig) -> Any:
    return RuntimeConfigOut(shown_values(LayerOf(row.provider, row.agent), row.values)).data
