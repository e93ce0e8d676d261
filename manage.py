#!/usr/bin/env python
import os
import sys

if __name__ == "__main__":
    if sys.argv[1:] == ["up"]:  # for as long as the service runs: without Django
        from toolhub.embedded.supervisor import up

        sys.exit(up())
    from django.core.management import execute_from_command_line

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolhub.settings")
    execute_from_command_line(sys.argv)
