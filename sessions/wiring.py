"""Hands the functions of this app's rooms to the rooms below that call them: docs/architecture.md lists them."""

from __future__ import annotations

from capabilities.access import previews as access
from capabilities.access.policies import previews as policies
from capabilities.agents.agents import previews as agents
from capabilities.agents.toolkits import previews as toolkits
from capabilities.assistant.records import kinds
from capabilities.catalogue import previews as catalogue
from capabilities.catalogue.imports import readers
from capabilities.catalogue.tools.recipients import writes as recipients
from capabilities.common import dry_run as routes
from capabilities.common import registry_version
from capabilities.running import attachments
from sessions.asking.approvals import queries as approvals
from sessions.audit_targets import TARGET_PAGES
from sessions.budgets import writes as budgets
from sessions.doors.schedules.reminder_kind import REMINDERS
from sessions.insight.previews import dry_run, offers, roles
from sessions.selection import round_costs, starts
from sessions.turns import bell, files
from toolhub.tenants import menu, targets
from toolhub.tenants.organisation import writes as organisation


def provide_all() -> None:
    """Called once, when the apps are ready."""
    menu.waiting_counts.provide({"approval_list": approvals.approvals_notice})
    organisation.set_time_zone.provide(budgets.set_time_zone)
    targets.target_pages.provide(TARGET_PAGES)
    kinds.further_kinds.provide({REMINDERS.name: REMINDERS})
    registry_version.announce_registry.provide(bell.announce_registry)
    readers.ring_for_import.provide(bell.ring_for_import)
    attachments.attached_content.provide(files.attached_content)
    access.impact_of_roles.provide(roles.impact_of_roles)
    access.impact_of_revoking.provide(roles.impact_of_revoking)
    policies.impact_of_policy.provide(offers.impact_of_policy)
    policies.impact_of_profile.provide(offers.impact_of_profile)
    catalogue.impact_of_switching_off.provide(roles.impact_of_switching_off)
    recipients.impact_of_giving.provide(offers.impact_of_giving)
    toolkits.impact_of_toolkit.provide(offers.impact_of_toolkit)
    agents.impact_of_agent.provide(offers.impact_of_agent)
    agents.start_of.provide(starts.start_of)
    agents.cost_of_draft.provide(round_costs.cost_of_draft)
    routes.preview_of.provide(dry_run.preview_of)
