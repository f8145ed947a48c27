"""Inspection of a host: networks, addresses of guests, use of resources."""
