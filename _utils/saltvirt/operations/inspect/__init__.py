"""Verbs that inspect hosts and guests."""
