"""The service's own settings, on a data folder that is thrown away."""

import atexit
import os
import shutil
import tempfile

if "TOOLHUB_DATA_DIR" not in os.environ:
    os.environ["TOOLHUB_DATA_DIR"] = tempfile.mkdtemp(prefix="toolhub-tests-")
    atexit.register(shutil.rmtree, os.environ["TOOLHUB_DATA_DIR"], ignore_errors=True)
os.environ.setdefault("TOOLHUB_LOG_LEVEL", "WARNING")

from toolhub.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# Flows run in threads of their own, with connections of their own: a file, not memory.
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):  # noqa: F405
    DATABASES["default"]["TEST"] = {"NAME": str(DATA_DIR / "test.sqlite3")}  # noqa: F405
    # No test is about the loss of power, so no commit waits for the disk.
    DATABASES["default"]["OPTIONS"]["init_command"] += "PRAGMA synchronous=OFF;"  # noqa: F405
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
# Each test client makes the middleware anew: WhiteNoise looks a file up when asked, in place of listing all at once.
WHITENOISE_AUTOREFRESH = True
TOOLHUB_PRIVATE_HOSTS = ["provider:127.0.0.1", "tool:127.0.0.1", "mcp:127.0.0.1"]
# pytest's live server looks for the app by this name, and serves no static files without it.
INSTALLED_APPS = ["django.contrib.staticfiles" if "static_files" in app else app for app in INSTALLED_APPS]  # noqa: F405
