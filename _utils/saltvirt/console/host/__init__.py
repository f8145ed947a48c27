"""A guest's screen and serial port for one caller, on the hypervisor."""
