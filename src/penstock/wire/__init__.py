"""What travels over HTTP: the same nouns for the server, its OpenAPI document and the client."""
