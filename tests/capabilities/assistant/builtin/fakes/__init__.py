"""Services of the world outside, on loopback: each behaves like the real one, as far as a tool can tell."""
