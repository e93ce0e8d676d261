"""The built-in tools that need sessions: loading, delegation, schedules, reminders, and reading what was said."""
