"""The host itself: what it has, what it tells the master, its maintenance and events."""
