"""Who calls, by what they show: API keys, tokens of an issuer, tokens asked about."""
