"""The application API: tasks, subscribers, enqueueing, jobs."""

from penstock.app.app import Penstock

__all__ = ["Penstock"]
