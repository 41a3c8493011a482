from django.db import connection, transaction

from shop.models import Order
from shop.tasks import confirm


def place_order(item: str) -> Order:
    """Saves the order and its job together, or neither."""
    with transaction.atomic():
        order = Order.objects.create(item=item)
        confirm.options(connection=connection).enqueue(order.id)
    return order
