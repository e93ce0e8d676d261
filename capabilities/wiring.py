"""Hands the functions of this app's rooms to the rooms below that call them: docs/architecture.md lists them."""

from __future__ import annotations

from capabilities import assistant_switch
from capabilities.access import powers, roles_above
from capabilities.access.requests import queries as requests
from capabilities.access.roles import invited
from capabilities.agents.agents import giving
from capabilities.agents.runtime_config import writes as runtime_config
from capabilities.agents.sharing import imported_toolkits, toolkit_files
from capabilities.agents.sharing import queries as sharing
from capabilities.assistant.records import feeds
from capabilities.audit_targets import TARGET_PAGES
from capabilities.catalogue.categories import queries as categories
from capabilities.catalogue.imports import definitions, openapi, readers
from capabilities.catalogue.imports.readers import Source
from capabilities.catalogue.servers import queries as servers
from capabilities.catalogue.servers import refresh
from capabilities.catalogue.tools.bulk import writes as bulk
from capabilities.catalogue.tools.recipients import writes as recipients
from capabilities.catalogue.versions import queries as versions
from capabilities.models import ImportSource
from capabilities.running.credentials import writes as credentials
from toolhub.tenants import authority, menu, targets
from toolhub.tenants.identity import account
from toolhub.tenants.organisation import writes as organisation
from toolhub.tenants.people import invitations
from toolhub.tenants.people import writes as people


def provide_all() -> None:
    """Called once, when the apps are ready."""
    authority.powers_of_each.provide(powers.read_powers)
    authority.powers_above.provide(roles_above.read_roles_above)
    invitations.offered_roles.provide(invited.offered_roles)
    invitations.set_invited_roles.provide(invited.set_invited_roles)
    invitations.give_invited_roles.provide(invited.give_invited_roles)
    organisation.bring_assistant.provide(assistant_switch.bring_assistant)
    organisation.set_assistant_aside.provide(assistant_switch.set_assistant_aside)
    account.end_calendar_address.provide(feeds.remove_feed)
    people.category_names.provide(categories.category_names)
    people.forget_accounts.provide(credentials.forget_accounts)
    menu.waiting_counts.provide(
        {
            "approval_versions": versions.versions_notice,
            "request_list": requests.requests_notice,
            "import_review_list": servers.imports_notice,
            "server_list": servers.servers_notice,
            "tool_list": servers.refused_tools_notice,
        }
    )
    targets.target_pages.provide(TARGET_PAGES)
    readers.sources.provide(
        {
            ImportSource.DEFINITIONS: Source(definitions.read),
            ImportSource.OPENAPI: Source(openapi.read),
            ImportSource.MCP: Source(refresh.read_for_import),
            ImportSource.TOOLKIT: Source(
                toolkit_files.read, imported_toolkits.after_accept, review=sharing.toolkit_review
            ),
        }
    )
    recipients.give_tools.provide(giving.give_tools)
    bulk.set_knobs_of.provide(runtime_config.set_knobs_of)
