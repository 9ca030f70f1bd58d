"""The suites: crash points, power cuts, I/O errors, simulated days, the model and the kill storm."""
