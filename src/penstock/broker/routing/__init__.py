"""Routing rules: manages them, applies them to drafts and to ends."""
