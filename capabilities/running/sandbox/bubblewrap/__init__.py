"""The runtime of CPython itself, in namespaces of the machine: off unless the operator allows it and it holds.

`zygote.py` is what runs inside; it is read as a file, imports nothing of the service, and nothing imports it.
"""
