"""Reports of the suites and FAULTS.md."""
