"""MCP client for servers of others: sessions with processes, requests over HTTP, and the reading of results.

Knows addresses and definitions. The rooms above say who owns a server.
"""
