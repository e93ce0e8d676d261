"""The runtime that needs nothing of the machine: an interpreter of a part of Python, in processes of its own."""
