"""What keeps a scope small: collection and retention, also unasked."""
