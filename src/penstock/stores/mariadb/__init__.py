"""The MariaDB store."""
