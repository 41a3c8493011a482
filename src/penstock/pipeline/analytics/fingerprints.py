"""What two errors have in common when only their numbers, names and places differ."""

from pyspark.sql import Column
from pyspark.sql import functions as f

# Of a long trace the beginning and the end say what it was.
MAX_ERROR_LENGTH = 2_000
# In this order.
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
# Looked for only in an error that has these letters: the patterns take long to find nothing.
REQUIRED_TEXTS = {"<address>": "@", "<url>": "://"}


def make_template(error: Column) -> Column:
    """The error with a mark for everything that differs from case to case."""
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
    """Sixteen letters for a template; null without an error."""
    return f.substring(f.sha2(make_template(error), 256), 1, 16)
