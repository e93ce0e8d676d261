"""The built-in tools that read this service's own conversations."""
