"""The weather: crash windows, kill plans and the checks that follow. Production code never imports it."""
