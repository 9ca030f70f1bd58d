"""Benchmarks. Ratios inside one run are what counts; `./run bench NAME` runs one."""
