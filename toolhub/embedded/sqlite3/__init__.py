"""Django's backend for SQLite, for many threads that write: they take turns. Set as ENGINE in toolhub/settings.py."""
