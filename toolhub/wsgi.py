"""For WSGI servers. Live pages and streams need the ASGI door; this one serves the rest."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolhub.settings")

application = get_wsgi_application()
