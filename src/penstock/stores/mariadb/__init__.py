"""The store in a MariaDB database."""
