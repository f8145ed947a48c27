"""Resources and guests of the hosts."""
