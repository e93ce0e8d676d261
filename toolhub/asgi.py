"""The web server's door: `uvicorn toolhub.asgi:application`."""

from __future__ import annotations

import os
import warnings

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolhub.settings")
# WhiteNoise hands files over piece by piece in sync code; Django says so once for each, and nothing is wrong.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

application = get_asgi_application()
