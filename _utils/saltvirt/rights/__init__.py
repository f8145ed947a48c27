"""Who may do what to which guests: what ``virt:rights`` says, and decides. See docs/rights.md."""
