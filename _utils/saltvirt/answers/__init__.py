"""Answers of hosts to the master: messages of saltvirt.schema."""
