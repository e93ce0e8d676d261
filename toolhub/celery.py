"""The Celery application. Its settings are the CELERY_ ones in toolhub/settings.py, its tasks in each app's tasks.py.

A task is a doorbell: the queue is in the database, so any message may be lost or come twice.
"""

from __future__ import annotations

import os

from celery import Celery

from toolhub.broker import use_our_channel

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolhub.settings")
# Django's checks, which `prepare` has made, would import every page into the worker: 15 MB.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

use_our_channel()
app = Celery("toolhub")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["sessions.worker"])
