"""Installation of the service's own tools in an organisation, and of what changed in them."""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction

from capabilities.catalogue.categories.writes import install_categories
from capabilities.catalogue.tools.writes import Definition, audited_content, same_content, write_versions
from capabilities.common.names import release_key
from capabilities.common.registry_version import touch_registry
from capabilities.models import (
    Tool,
    ToolKind,
)
from capabilities.running.assistant import registry_of
from capabilities.running.registry import Registry, registry
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Organisation


@transaction.atomic
def install_builtin(organisation: Organisation, source: Registry = registry) -> list[Tool]:
    """Bring the built-in categories and tools that the organisation has up to the code's: missing ones are added,
    changed ones get a version.

    What the organisation switched off, moved, re-worded in its categories or wrote as instructions of a tool stays as
    it is. Returns the changed tools.
    """
    source = registry_of(organisation, source)
    categories = install_categories(organisation, source.categories.values())
    tools = {tool.name: tool for tool in Tool.every.filter(organisation=organisation).select_related("current_version")}
    to_write: list[tuple[Tool, Definition]] = []
    for builtin in source.tools.values():
        definition = Definition(
            builtin.name,
            builtin.description,
            builtin.parameters,
            builtin.effect,
            builtin.on_crash,
            builtin.timeout,
            untrusted_output=builtin.untrusted,
            in_untrusted=builtin.in_untrusted,
        )
        definition.check()
        tool = tools.get(builtin.name)
        if tool is None:
            release_key(Tool.every.filter(organisation=organisation), builtin.name)
            tool = Tool.objects.create(
                organisation=organisation,
                name=builtin.name,
                category=categories[builtin.category],
                service=builtin.service,
            )
        elif tool.kind != ToolKind.BUILTIN:
            continue
        else:
            if tool.service != builtin.service:
                tool.service = builtin.service
                tool.save(update_fields=["service"])
            if tool.current_version:
                definition = replace(definition, instructions=tool.current_version.instructions)
                if same_content(tool.current_version, definition):
                    continue
        to_write.append((tool, definition))
    if to_write:
        write_versions(to_write, actor=None)
        for tool, definition in to_write:
            record("tool.install", tool, actor=None, after=audited_content(definition))
        touch_registry(organisation.pk)
    return [tool for tool, _ in to_write]
