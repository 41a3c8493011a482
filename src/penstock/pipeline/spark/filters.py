"""Applies filters that Spark pushes down to Arrow batches."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as compute
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from penstock.errors import InvalidInput
from penstock.pipeline.lake.schema import MOMENT

SUPPORTED = (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    In,
    IsNull,
    IsNotNull,
)
COMPARISONS = {
    EqualTo: compute.equal,
    GreaterThan: compute.greater,
    GreaterThanOrEqual: compute.greater_equal,
    LessThan: compute.less,
    LessThanOrEqual: compute.less_equal,
}


def is_supported(each: Filter, schema: Any) -> bool:
    """Accepts only filters with the exact semantics of Spark, which does not apply them again."""
    name = get_column(each)
    if name is None:
        return False
    kind = schema.field(name).type
    return kind in (pa.int64(), pa.bool_(), pa.string(), MOMENT)


def get_column(each: Filter) -> str | None:
    if not isinstance(each, SUPPORTED) or len(each.attribute) != 1:
        return None
    return each.attribute[0]


def apply(filters: list[Filter], batch: Any) -> Any:
    for each in filters:
        batch = batch.filter(match_batch(each, batch))
    return batch


def match_batch(each: Filter, batch: Any) -> Any:
    """Nulls match only IsNull."""
    column = batch.column(get_column(each))
    match each:
        case IsNull():
            return compute.is_null(column)
        case IsNotNull():
            return compute.is_valid(column)
        case In(_, values):
            wanted = pa.array([value for value in values if value is not None], column.type)
            return compute.is_in(column, value_set=wanted)
        case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            return COMPARISONS[type(each)](column, pa.scalar(each.value, column.type))
    raise InvalidInput(f"unsupported filter: {each}")
