"""The hallway: wiring of the whole service. Imports nothing: the supervisor lives here too, and is to stay small."""

#: As pyproject.toml and CHANGELOG.md say it too.
__version__ = "1.0.0"
