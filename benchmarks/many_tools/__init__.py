"""An app with one category of 128 tools that answer at once, and a count of what each process asks the database for."""

#: The first N of them are what an agent with N tools has.
TOOL_NAMES = tuple(f"account_{number}_add" for number in range(128))
