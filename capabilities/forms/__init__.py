"""The forms: they shape and check, the domain functions write. One module a noun."""
