"""Keys of sealed scopes, and what they open."""
