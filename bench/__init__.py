"""Benchmarks. Only ratios inside one run are comparable; `./run bench NAME` runs one."""
