"""What gunicorn serves: `gunicorn --config python:examples.validation_service.gunicorn_conf …wsgi`."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.validation_service.settings")

application = get_wsgi_application()
