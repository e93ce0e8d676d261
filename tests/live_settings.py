"""For a server that runs beside the tests. No cache: the tests put its database back to an earlier state."""

from tests.settings import *  # noqa: F403

WHITENOISE_AUTOREFRESH = False
CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
#: A login of minutes ago is as good as a new one, so that pages which ask for one show their forms.
ACCOUNT_REAUTHENTICATION_TIMEOUT = 86_400
