"""Move guests between hosts."""
