"""High availability on the master: what persons want of it, its engine, its fences. What is to be
done is decided by ``saltvirt.ha.model``. Nothing but its adapters imports it: docs/ha.md."""
