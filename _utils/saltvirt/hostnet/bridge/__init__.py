"""A bridge under the host's own address: what each way to configure a network wants."""
