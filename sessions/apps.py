from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Labelled apart from django.contrib.sessions, which holds the login sessions."""

    name = "sessions"
    label = "toolhub_sessions"

    def ready(self) -> None:
        from capabilities.assistant.records.kinds import add_kind  # noqa: PLC0415 -- app ready
        from capabilities.catalogue.imports.readers import ring_for_import  # noqa: PLC0415 -- app ready
        from capabilities.common.registry_version import AFTER_CHANGE  # noqa: PLC0415 -- app ready
        from capabilities.running.registry import registry  # noqa: PLC0415 -- app ready
        from sessions.asking.approvals.queries import approvals_notice  # noqa: PLC0415 -- app ready
        from sessions.audit_targets import add_targets  # noqa: PLC0415 -- app ready
        from sessions.doors.schedules.reminder_kind import REMINDERS  # noqa: PLC0415 -- app ready
        from sessions.insight.previews import provide_previews  # noqa: PLC0415 -- app ready
        from sessions.turns import bell  # noqa: PLC0415 -- app ready
        from toolhub.celery import app  # noqa: PLC0415 -- app ready
        from toolhub.tenants.pages import register_waiting  # noqa: PLC0415 -- app ready

        registry.discover("sessions.doors.builtin")
        app.set_current()  # every process rings with the same application
        add_kind(REMINDERS)
        add_targets()
        AFTER_CHANGE.append(bell.announce_registry)
        ring_for_import.provide(bell.ring_for_import)
        provide_previews()
        register_waiting("approval_list", approvals_notice)
