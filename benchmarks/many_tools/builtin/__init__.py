"""Found by the registry, like the built-in tools of any installed app."""
