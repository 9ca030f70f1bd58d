"""Pure configure-price-quote logic: no I/O, no clock, no randomness. Equal inputs give equal bytes."""
