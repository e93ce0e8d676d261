"""A stand-in that speaks the chat-completions protocol until a provider is configured:
`toolhub.embedded.offline_model:app`.

It is no LLM: it matches words of a message with the words of the tools it is sent. Must import neither Django nor the
rest of the service: it runs as a process of its own, and knows only what a request tells it.
"""

from toolhub.embedded.offline_model.app import app

__all__ = ["app"]
