"""Versions of tools: which are in force at once, who decides on the others, what differs between two, and the way
back."""
