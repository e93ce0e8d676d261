"""Tools written in Python here, by people in an editor and by agents: checks, tests, versions."""
