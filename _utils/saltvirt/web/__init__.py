"""The web page of the cloud: its sessions, its view of the cloud, the WebSocket."""
