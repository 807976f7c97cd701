"""How fast Foldpoint is, against the limit and against its peers. See README.md here."""
