"""Bulk actions over a filter or ids."""
