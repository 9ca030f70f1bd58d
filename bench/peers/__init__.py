"""Other libraries at the same deed, each in its own process and environment. Nothing of the product is imported here."""
