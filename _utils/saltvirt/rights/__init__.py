"""The rights of users to guests, as ``virt:rights`` defines them; see docs/how-to/rights.md."""
