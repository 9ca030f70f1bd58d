"""Pure configure-price-quote: no I/O, no clock, no randomness. Same inputs, same bytes."""
