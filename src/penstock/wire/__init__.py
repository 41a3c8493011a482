"""The wire types of the HTTP API, shared by the server, the OpenAPI document and the client."""
