"""A cloud of hundreds on one machine: a real master, and minions that speak Salt's own protocol."""
