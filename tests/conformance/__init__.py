"""The promises of a store, written once and kept by every store."""
