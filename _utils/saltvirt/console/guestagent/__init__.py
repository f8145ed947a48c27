"""The protocol of QEMU's guest agent: requests, commands and answers."""
