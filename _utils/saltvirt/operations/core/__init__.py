"""Operations, results and reports."""
