"""Pages of runtime settings: the layers, one layer with its patterns, and one tool with every layer's word on it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.agents.runtime_config.forms import PREFIX, KnobsForm, PatternForm, SharedForm
from capabilities.agents.runtime_config.queries import (
    OFFERED,
    chosen,
    layer_or_404,
    own_settings,
    resolved_tool,
    shown_in_force,
    shown_layer,
    spec_or_404,
)
from capabilities.agents.runtime_config.writes import (
    HARMLESS,
    LayerOf,
    clear_runtime_config,
    set_shared_knobs,
    set_tool_knobs,
)
from capabilities.common.pages import status_of
from capabilities.common.refused import ChangeRefused
from capabilities.contract.runtime import pattern_of
from capabilities.models import Agent, Provider, RuntimeLayer, Tool, ToolkitTool
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in
from toolhub.tenants.rows.keyset import Keyset


@require_GET
@signed_in
def runtime_list(request: MemberRequest, org: str) -> HttpResponse:
    """The layers that say anything, and the way to every other."""
    member_or_404(request, right=Right.POLICIES)
    address = ListAddress(request.GET)
    rows = own_settings().exclude(layer=RuntimeLayer.ORGANISATION)
    page = Keyset(rows, ("-layer", "pk")).page(**address.place)
    context = {"organisation_layer": shown_layer(layer_or_404("organisation")), **address.context(page)}
    return render(request, "capabilities/agents/runtime_config/runtime_list.html", context)


@require_GET
@signed_in
def runtime_find(request: MemberRequest, org: str) -> HttpResponse:
    """Redirect to the settings of the tool, provider or agent that was typed; back to the list where there is none."""
    member_or_404(request, right=Right.POLICIES)
    asked = {each: request.GET.get(each, "").strip()[:64] for each in ("tool", "agent", "provider")}
    if Tool.objects.filter(name=asked["tool"]).exists():
        return redirect("runtime_tool", org, asked["tool"])
    for kind in ("agent", "provider"):
        if asked[kind]:
            with suppress(Http404):
                return redirect(address_of(org, layer_or_404(kind, asked[kind])))
    messages.error(request, f"There is no {', '.join(f'{kind} {name}' for kind, name in asked.items() if name)}.")
    return redirect("runtime_list", org)


@require_http_methods(["GET", "POST"])
@signed_in
def runtime_layer(request: MemberRequest, org: str, kind: str, slug: str = "") -> HttpResponse:
    """A layer's own settings; `pattern` in the address opens the form of that one."""
    member_or_404(request, right=Right.POLICIES)
    layer = layer_or_404(kind, slug)
    shown = shown_layer(layer)
    pattern = pattern_of(request.GET.get("pattern", ""))
    stored = next((dict(shown.values["tools"][each.pattern]) for each in shown.patterns if each.pattern == pattern), {})
    posted = request.POST if request.method == "POST" else None
    is_shared = posted is not None and "shared" in posted
    shared_form = SharedForm(posted if is_shared else None, stored=shown.values)
    pattern_form = PatternForm(posted if posted is not None and not is_shared else None, pattern=pattern, stored=stored)
    if posted is not None:
        form: KnobsForm = shared_form if is_shared else pattern_form
        if form.is_valid() and _saved(request, layer, form, pattern):
            return redirect(address_of(org, layer))
    context = {
        "shown": shown,
        "layer": layer,
        "pattern": pattern,
        "shared_form": shared_form,
        "form": pattern_form,
        "address": address_of(org, layer),
        "remove": address_of(org, layer) + "remove/",
        "unread": [each for each in shown.notes if each.kind not in HARMLESS],
        "is_open": bool(pattern or pattern_form.is_bound),
    }
    status = status_of(shared_form) if is_shared else status_of(pattern_form)
    return render(request, "capabilities/agents/runtime_config/runtime_layer.html", context, status=status)


def _saved(request: MemberRequest, layer: LayerOf, form: KnobsForm, pattern: str) -> bool:
    """Return whether the form was stored; else it shows why not. A pattern under another name than before is taken
    over."""
    member = request.membership
    try:
        if isinstance(form, SharedForm):
            knobs = {name: form.knobs().get(name) for name in form.table}
            set_shared_knobs(layer, form.cleaned_data["profile"], knobs, actor=member)
        else:
            new = form.cleaned_data["pattern"]
            set_tool_knobs(layer, new, form.knobs(), actor=member, instead_of=pattern)
    except ChangeRefused as error:
        name = error.field.rpartition(".")[2]
        field = next((each for each in (name, PREFIX + name) if each in form.fields), None)
        form.add_error(field, str(error))
        return False
    clamped = [each.note for each in _notes(form)]
    messages.success(request, "The settings are saved: they count from the next call on.")
    for note in clamped:
        messages.warning(request, f"{note[0].upper()}{note[1:]}: it is held in its range.")
    return True


def _notes(form: KnobsForm) -> list[Any]:
    read = [form.table[name].read(value) for name, value in form.knobs().items()]
    return [each for each in read if each.kind == "clamped"]


@require_POST
@signed_in
def runtime_remove(request: MemberRequest, org: str, kind: str, slug: str = "") -> HttpResponse:
    """Take one pattern out of a layer, or all that it says."""
    member = member_or_404(request, right=Right.POLICIES)
    layer = layer_or_404(kind, slug)
    pattern = pattern_of(request.POST.get("pattern", ""))
    if pattern:
        set_tool_knobs(layer, pattern, {}, actor=member)
        messages.success(request, f"{pattern} is removed. For its tools, the settings that are more general count.")
    else:
        clear_runtime_config(layer, actor=member)
        messages.success(request, "The settings are removed. The settings that are more general count.")
    return redirect(address_of(org, layer))


@require_GET
@signed_in
def runtime_tool(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Every knob of one tool for a chosen agent, provider and toolkit: who said what, and what is in force."""
    member_or_404(request, right=Right.POLICIES)
    asked = {each: request.GET.get(each, "")[:64] for each in ("agent", "provider", "toolkit")}
    spec = spec_or_404(name)
    try:
        tool = resolved_tool(spec, chosen(**asked, tool=name))
    except ChangeRefused as error:
        raise Http404(str(error)) from error
    lines = ToolkitTool.objects.filter(tool=tool.spec.tool_id).order_by("toolkit__name")
    context = {
        "tool": tool,
        "rows": shown_in_force(tool),
        "asked": asked,
        "agents": Agent.objects.order_by("name", "pk").values_list("slug", "name")[:OFFERED],
        "providers": Provider.objects.order_by("name", "pk").values_list("slug", "name")[:OFFERED],
        "toolkits": lines.values_list("toolkit__name", flat=True)[:OFFERED],
    }
    return render(request, "capabilities/agents/runtime_config/runtime_tool.html", context)


def address_of(org: str, layer: LayerOf) -> str:
    """The page of a layer."""
    row = layer.provider or layer.agent
    if row is None:
        return reverse("runtime_organisation", args=[org])
    return reverse(f"runtime_{layer.kind}", args=[org, row.slug])
