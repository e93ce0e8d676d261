"""The hallway: wiring of the whole service. Imports nothing: the supervisor lives here too, and is to stay small."""
