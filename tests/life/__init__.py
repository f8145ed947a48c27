"""Every verb after every other verb, with guests that boot: ``make life``, see README.md."""
