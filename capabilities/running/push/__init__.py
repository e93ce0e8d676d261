"""Notifications in a member's browsers (Web Push, RFC 8030 and 8291): where they go, and how they are sent."""
