from django.apps import AppConfig


class CapabilitiesConfig(AppConfig):
    name = "capabilities"

    def ready(self) -> None:
        from capabilities.access.powers import read_powers  # noqa: PLC0415 -- app ready
        from capabilities.access.requests.queries import count_waiting_for  # noqa: PLC0415 -- app ready
        from capabilities.access.roles import invited as invited_roles  # noqa: PLC0415 -- app ready
        from capabilities.access.roles_above import read_roles_above  # noqa: PLC0415 -- app ready
        from capabilities.agents.agents import giving  # noqa: PLC0415 -- app ready
        from capabilities.agents.runtime_config.writes import set_knobs_of  # noqa: PLC0415 -- app ready
        from capabilities.agents.sharing import imported_toolkits, toolkit_files  # noqa: PLC0415 -- app ready
        from capabilities.agents.sharing.queries import toolkit_review  # noqa: PLC0415 -- app ready
        from capabilities.audit_targets import add_targets  # noqa: PLC0415 -- app ready
        from capabilities.catalogue.categories.queries import category_names  # noqa: PLC0415 -- app ready
        from capabilities.catalogue.imports import definitions, openapi  # noqa: PLC0415 -- app ready
        from capabilities.catalogue.imports.readers import AFTER_ACCEPT, REVIEWS, register_reader  # noqa: PLC0415 -- app ready
        from capabilities.catalogue.servers import refresh  # noqa: PLC0415 -- app ready
        from capabilities.catalogue.servers.queries import refused_tools_notice, servers_notice  # noqa: PLC0415 -- app ready
        from capabilities.catalogue.tools.bulk import writes as bulk  # noqa: PLC0415 -- app ready
        from capabilities.catalogue.tools.recipients import writes as recipients  # noqa: PLC0415 -- app ready
        from capabilities.models import ImportSource  # noqa: PLC0415 -- app ready
        from capabilities.running.credentials.writes import forget_accounts  # noqa: PLC0415 -- app ready
        from capabilities.running.egress.guard import warn_of_open_hosts  # noqa: PLC0415 -- app ready
        from capabilities.running.registry import registry  # noqa: PLC0415 -- app ready
        from toolhub.tenants.authority import register_powers  # noqa: PLC0415 -- app ready
        from toolhub.tenants.pages import register_waiting  # noqa: PLC0415 -- app ready
        from toolhub.tenants.people.invitations import register_invited_roles  # noqa: PLC0415 -- app ready
        from toolhub.tenants.people.writes import register_categories, register_end  # noqa: PLC0415 -- app ready

        registry.discover("capabilities.assistant.builtin")
        warn_of_open_hosts()
        recipients.give_tools.provide(giving.give_tools)
        bulk.set_knobs_of.provide(set_knobs_of)
        add_targets()
        register_powers(read_powers, read_roles_above)
        register_invited_roles(invited_roles)
        register_waiting("request_list", count_waiting_for)
        register_waiting("server_list", servers_notice)
        register_waiting("tool_list", refused_tools_notice)
        register_categories(category_names)
        register_end(forget_accounts)
        register_reader(ImportSource.DEFINITIONS, definitions.read)
        register_reader(ImportSource.OPENAPI, openapi.read)
        register_reader(ImportSource.MCP, refresh.read_for_import)
        register_reader(ImportSource.TOOLKIT, toolkit_files.read)
        AFTER_ACCEPT[ImportSource.TOOLKIT] = imported_toolkits.after_accept
        REVIEWS[ImportSource.TOOLKIT] = toolkit_review
