"""Operations on the cloud, a file for each: check, run with undo, confirm."""
