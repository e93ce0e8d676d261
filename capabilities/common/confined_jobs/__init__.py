"""Jobs that run in a limited child process: one module a job, each with `run(**arguments)`. No Django, rows or network.

`capabilities.confined` starts them. They read text that a member wrote, so each may crash, loop or ask for all memory.
"""
