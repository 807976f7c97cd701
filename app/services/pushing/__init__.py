"""What a push does, from its bytes to the commit."""
