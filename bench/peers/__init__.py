"""Other libraries with the same work, each in its own process and environment. Nothing of the product is imported here."""
