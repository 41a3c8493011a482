from django.test import TestCase

from penstock.testing import SyncSimulation
from shop.models import Order
from shop.orders import place_order
from shop.tasks import queue


class OrderTest(TestCase):
    def test_an_order_is_confirmed(self):
        with SyncSimulation.open(queue) as simulation:
            order = place_order("tea")
            simulation.run()
        assert Order.objects.get(id=order.id).confirmed
