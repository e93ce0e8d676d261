"""Definitions from OpenAPI documents, MCP servers and files: read, reviewed by a person, and accepted or not."""
