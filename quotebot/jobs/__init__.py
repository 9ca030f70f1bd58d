"""Time-driven work: the scheduler, its jobs, maintenance and retention."""
