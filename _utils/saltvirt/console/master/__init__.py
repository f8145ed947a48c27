"""Guests' screens and serial ports from the master: the way there, tickets, the WebSocket."""
