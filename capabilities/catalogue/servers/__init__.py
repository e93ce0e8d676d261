"""MCP servers of an organisation: set up, read again, and what changed at them.

Knows rows and rights. How a server is spoken to, `mcp_client` knows.
"""
