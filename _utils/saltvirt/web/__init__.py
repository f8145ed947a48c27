"""The master's side of connections to guests' displays and serial ports: connections, tickets, the
WebSocket."""
