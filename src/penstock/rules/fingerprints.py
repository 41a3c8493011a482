"""Fingerprints errors by replacing numbers, names and paths with placeholders."""

import re
from hashlib import sha256

# Keeps the beginning and the end of a long traceback.
MAX_ERROR_LENGTH = 2_000
# The order matters. Spark uses the same patterns.
TEMPLATES = (
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<id>"),
    (r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b", "<address>"),
    (r"\b[a-z][a-z0-9+]*://\S+", "<url>"),
    (r"'[^'\n]{0,200}'|\"[^\"\n]{0,200}\"", "<text>"),
    (r"(?:/[\w.@-]+){2,}/?", "<path>"),
    (r"\b(?:0x[0-9a-fA-F]++|(?=[a-f]*+[0-9])[0-9a-f]{8,}+)\b", "<hex>"),
    (r"\d+(?:[.:,]\d+)*", "<n>"),
    (r"\s+", " "),
)
# Skips slow patterns for errors that do not contain this text.
REQUIRED_TEXTS = {"<address>": "@", "<url>": "://"}
# ASCII, as in Java.
PATTERNS = tuple((re.compile(pattern, re.ASCII), mark) for pattern, mark in TEMPLATES)


def make_template(error: str) -> str:
    """Replaces the variable parts of an error with placeholders."""
    half = MAX_ERROR_LENGTH // 2
    text = f"{error[:half]} … {error[-half:]}" if len(error) > MAX_ERROR_LENGTH else error
    for pattern, mark in PATTERNS:
        if mark not in REQUIRED_TEXTS or REQUIRED_TEXTS[mark] in error:
            text = pattern.sub(mark, text)
    return text.strip(" ")


def make_fingerprint(error: str) -> str:
    """Returns 16 hex digits of the template's hash."""
    return sha256(make_template(error).encode()).hexdigest()[:16]
