"""The service: verbs over HTTP, for producers, consumers and operators in any language."""
