"""Authentication, authorization and rate limits of the HTTP service."""
