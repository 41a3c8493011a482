"""What only the MariaDB store has to promise."""
