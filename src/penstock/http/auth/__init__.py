"""Authentication, authorisation and rate limits of the HTTP service."""
