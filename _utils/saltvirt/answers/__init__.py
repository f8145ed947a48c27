"""What hosts answer when the master asks or tells them something: Facts, see saltvirt.schema."""
