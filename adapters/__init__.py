"""Stores, connectors and the host loop: everything that touches the outside."""
