"""Records that members keep: tasks, lists, journals, a calendar, people, memories, ... Each row is one member's own.

Tools, pages and REST read these rows through `capabilities/running/records/own.py` and write them through `writes/`.
`kinds.py` says for each kind which fields it has, and how a page and REST show it; `views.py` and `api.py` are the same
for every kind.
"""
