"""The lake: Parquet files, manifests, readers and writers."""
