"""Which tools a text calls for. Pure functions, no Django."""

import os

#: Before numpy is imported, which reads it once. A worker's threads multiply small matrices side by side: with threads of
#: its own for each, they wait for one another, thirty at once for 25 s, without them for 1 s.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
