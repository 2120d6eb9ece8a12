"""Django's commands, from the top of a clone: `python -m examples.validation_service.manage check`."""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.validation_service.settings")
    execute_from_command_line(sys.argv)
