"""Django's backend for PostgreSQL: a thread holds a connection only while it uses it. Set as ENGINE in settings.py."""
