"""Signing of tools' calls: stored credentials, members' own accounts, and OAuth sign-ins."""
