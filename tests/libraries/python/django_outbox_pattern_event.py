"""Makes the table of django-outbox-pattern (`create`), or writes one event with its model and prints the row's id."""

import os
import sys
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.core.management import call_command

step, topic = sys.argv[1:]
place = urlsplit(os.environ["DATABASE_URL"])
settings.configure(
    INSTALLED_APPS=["django_outbox_pattern"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": place.hostname,
            "PORT": place.port,
            "USER": place.username,
            "NAME": place.path[1:],
        }
    },
    USE_TZ=True,
)
django.setup()
if step == "create":
    call_command("migrate", verbosity=0)
else:
    from django_outbox_pattern.models import Published

    event = Published(destination=topic, version="v1", body={"order": 7, "name": "Größe"})
    event.save()
    print(event.id)
