"""The hallway: wiring of the whole service. The Celery application is here so that every process shares it."""

from toolhub.celery import app as celery_app

__all__ = ["celery_app"]
