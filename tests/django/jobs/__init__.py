"""A project whose processes tests start, hold and kill: a service, workers of an inbox and of Celery."""
