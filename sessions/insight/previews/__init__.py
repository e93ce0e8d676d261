"""Previews of a change of configuration, for the pages and routes where it is made: its effect on members and live
sessions."""

from __future__ import annotations


def provide_previews() -> None:
    """Called once, when the apps are ready."""
    from capabilities.access import previews as access  # noqa: PLC0415 -- app ready
    from capabilities.access.policies import previews as policies  # noqa: PLC0415 -- app ready
    from capabilities.agents.agents import previews as agents  # noqa: PLC0415 -- app ready
    from capabilities.agents.toolkits import previews as toolkits  # noqa: PLC0415 -- app ready
    from capabilities.catalogue import previews as catalogue  # noqa: PLC0415 -- app ready
    from capabilities.catalogue.tools.recipients import writes as recipients  # noqa: PLC0415 -- app ready
    from capabilities.common import dry_run as routes  # noqa: PLC0415 -- app ready
    from sessions.insight.previews import dry_run, offers, roles  # noqa: PLC0415 -- app ready
    from sessions.selection.starts import start_of  # noqa: PLC0415 -- app ready

    access.impact_of_roles.provide(roles.impact_of_roles)
    access.impact_of_revoking.provide(roles.impact_of_revoking)
    agents.impact_of_agent.provide(offers.impact_of_agent)
    agents.start_of.provide(start_of)
    catalogue.impact_of_switching_off.provide(roles.impact_of_switching_off)
    recipients.impact_of_giving.provide(offers.impact_of_giving)
    policies.impact_of_policy.provide(offers.impact_of_policy)
    policies.impact_of_profile.provide(offers.impact_of_profile)
    routes.preview_of.provide(dry_run.preview_of)
    toolkits.impact_of_toolkit.provide(offers.impact_of_toolkit)
