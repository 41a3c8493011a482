"""The Spark data source and sink."""
