"""Whether this machine can have the table of words' vectors, which routing goes on without."""

from __future__ import annotations

import platform
import sys

import pytest

#: As the markers of the extra `vectors` in pyproject.toml.
HAS_WHEEL = sys.version_info < (3, 14) and platform.machine() in ("x86_64", "AMD64")
with_vectors = pytest.mark.skipif(not HAS_WHEEL, reason="no table of vectors: wordllama has no wheel for this machine")
