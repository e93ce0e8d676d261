"""What signs the calls of tools: stored credentials, members' own accounts, and OAuth sign-ins."""
