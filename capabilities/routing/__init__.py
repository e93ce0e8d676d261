"""Which tools a text calls for. Pure functions, no Django."""
