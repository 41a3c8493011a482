"""PostgreSQL: many machines, one database."""
