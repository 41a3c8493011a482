"""The demo that `penstock demo` plays."""
