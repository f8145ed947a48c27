"""What any program needs from the operating system: files, locks, processes, sockets."""
