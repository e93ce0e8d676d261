"""The service's own settings, on a data folder that is thrown away."""

import os
import tempfile

os.environ.setdefault("TOOLHUB_DATA_DIR", tempfile.mkdtemp(prefix="toolhub-tests-"))
os.environ.setdefault("TOOLHUB_LOG_LEVEL", "WARNING")

from toolhub.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
