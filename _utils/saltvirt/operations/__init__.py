"""Floor 2: what the cloud can do, each operation a file: check, execute with undo, confirm."""
