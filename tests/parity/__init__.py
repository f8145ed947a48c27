"""Salt 3007's `virt` and ours, called with the same arguments on the same fresh host."""
