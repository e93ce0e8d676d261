"""Whether an organisation has the personal assistant, and what is there without it. The one place that decides."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any

from django.http import Http404, HttpRequest
from django.urls import URLPattern

from capabilities.running.registry import Registry, registry
from toolhub.tenants.models import Membership, Organisation

#: The app of built-in tools that an organisation may be without.
ASSISTANT = "assistant"


def registry_of(organisation: Organisation, source: Registry = registry) -> Registry:
    """The built-in categories, tools and services that the organisation has."""
    return source if organisation.has_assistant else source.without(ASSISTANT)


def assistants_routes(patterns: Sequence[URLPattern]) -> list[URLPattern]:
    """These routes, each of which is missing (404) for members of an organisation without the assistant."""
    for pattern in patterns:
        pattern.callback = _with_assistant(pattern.callback)
    return list(patterns)


def _with_assistant(view: Any) -> Any:
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        member: Membership | None = getattr(request, "membership", None)
        if member is not None and not member.organisation.has_assistant:
            raise Http404("This organisation does not have the personal assistant.")
        return view(request, *args, **kwargs)

    return guarded
