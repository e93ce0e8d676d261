"""The pages of catalogue, agents and permissions. One module a noun."""
