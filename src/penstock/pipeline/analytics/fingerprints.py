"""Fingerprints errors by replacing numbers, names and paths with placeholders."""

from pyspark.sql import Column
from pyspark.sql import functions as f

# Keeps the beginning and the end of a long traceback.
MAX_ERROR_LENGTH = 2_000
# The order matters.
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


def make_template(error: Column) -> Column:
    """Replaces the variable parts of an error with placeholders."""
    text = f.when(
        f.length(error) > MAX_ERROR_LENGTH,
        f.concat(
            f.substring(error, 1, MAX_ERROR_LENGTH // 2),
            f.lit(" … "),
            f.right(error, f.lit(MAX_ERROR_LENGTH // 2)),
        ),
    ).otherwise(error)
    for pattern, mark in TEMPLATES:
        marked = f.regexp_replace(text, pattern, mark)
        if mark in REQUIRED_TEXTS:
            marked = f.when(error.contains(REQUIRED_TEXTS[mark]), marked).otherwise(text)
        text = marked
    return f.trim(text)


def make_fingerprint(error: Column) -> Column:
    """Returns 16 hex digits of the template's hash, or null without an error."""
    return f.substring(f.sha2(make_template(error), 256), 1, 16)
