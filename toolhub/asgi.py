"""The web server's door: `uvicorn toolhub.asgi:application`."""

from __future__ import annotations

import os
import warnings

from django.conf import settings
from django.core.asgi import get_asgi_application

from toolhub.intake import ClientAddress, LimitedBodies

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolhub.settings")
# WhiteNoise hands files over piece by piece in sync code; Django says so once for each, and nothing is wrong.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

application = ClientAddress(LimitedBodies(get_asgi_application()), settings.TOOLHUB_TRUSTED_PROXIES)
