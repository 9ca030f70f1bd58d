"""Looks at an installation and says what is wrong with it, why that matters and what to do; it changes nothing."""
