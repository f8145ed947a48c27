"""The host itself: inventory, progress of jobs, maintenance and events."""
