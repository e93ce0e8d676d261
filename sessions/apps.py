from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Labelled apart from django.contrib.sessions, which holds the login sessions."""

    name = "sessions"
    label = "toolhub_sessions"

    def ready(self) -> None:
        from capabilities.running.registry import registry  # noqa: PLC0415 -- app ready
        from sessions import wiring  # noqa: PLC0415 -- app ready
        from toolhub.celery import app  # noqa: PLC0415 -- app ready

        registry.discover("sessions.doors.builtin")
        app.set_current()  # every process rings with the same application
        wiring.provide_all()
