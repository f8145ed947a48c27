"""The metrics: their names, their help texts, and how they are computed."""
