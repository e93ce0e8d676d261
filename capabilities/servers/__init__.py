"""MCP servers of an organisation: set up, read again, and what changed at them."""
