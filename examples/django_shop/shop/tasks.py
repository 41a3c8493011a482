"""The jobs of the shop. Workers import this module."""

import os

import django
from django.apps import apps
from django.conf import settings

from penstock import Penstock

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
if not apps.ready:  # in a worker; in Django's own processes it is done
    django.setup()

queue = Penstock(f"sqlite:///{settings.DATABASES['default']['NAME']}")


@queue.task(queue="orders", max_attempts=5)
def confirm(order_id: int) -> None:
    from shop.models import Order

    Order.objects.filter(id=order_id).update(confirmed=True)
