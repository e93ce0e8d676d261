"""The tools that come with the house, one module a category. A module whose name starts with _ is no category."""
