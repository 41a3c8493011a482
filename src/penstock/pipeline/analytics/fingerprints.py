"""Fingerprints errors by replacing numbers, names and paths with placeholders."""

from pyspark.sql import Column
from pyspark.sql import functions as f

from penstock.rules.fingerprints import MAX_ERROR_LENGTH, REQUIRED_TEXTS, TEMPLATES


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
