"""Speaks MCP with servers of others: sessions with processes, requests over HTTP, and what a result comes to.

Knows addresses and definitions. Which server belongs to whom, the rooms above say.
"""
