"""A stand-in that speaks the chat-completions protocol until a provider is configured.

It is no LLM: it matches words of a message with the words of the tools that it is sent. It is a process of its own, and
imports of the service the pure rooms alone: the ranking of tools and the contract.
"""

from toolhub.embedded.offline_model.app import app

__all__ = ["app"]
