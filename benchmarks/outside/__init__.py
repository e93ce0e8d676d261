"""An app with one category of tools, whose every run is counted by another process."""
