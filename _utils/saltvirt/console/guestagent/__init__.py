"""What is said to a guest's agent (QEMU's), and what its answers may be."""
