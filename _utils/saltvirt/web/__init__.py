"""The web page of the master."""
