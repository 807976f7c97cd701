"""`foldpoint verify`."""
