"""Runs Python that members and agents wrote, where it can reach nothing: two runtimes behind one call.

Knows code, arguments, limits and host functions. Must not know organisations, tools or rows.
"""
