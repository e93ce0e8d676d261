"""Routing: choice of the tools that a text calls for. Pure functions, no Django."""

import os

#: Before numpy is imported, which reads it once. Threads of a worker multiply small matrices side by side: where each
#: product had threads of its own, thirty of them stood in each other's way for 25 s, and else take 1 s.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
