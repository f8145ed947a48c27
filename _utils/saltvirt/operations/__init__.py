"""What the cloud can do, each operation a file: check, execute with undo, confirm."""
