from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Labelled apart from django.contrib.sessions, which holds the login sessions."""

    name = "sessions"
    label = "toolhub_sessions"
