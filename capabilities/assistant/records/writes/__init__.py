"""The writes of members' own rows, one module a noun. Tools, pages and REST call the same function.

Each takes the owner first; a `change_...` leaves what it is not given. They raise RecordRefused, or ToolError from the
helpers that they share with the tools. None writes an audit entry: nobody but the member reaches these rows.
"""
