"""Previews of a change of configuration, for the pages and routes where it is made: its effect on members and live
sessions."""
