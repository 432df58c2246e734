"""Speed and memory of a kernel against its baselines: measured in a child process, kept as CSV rows, drawn as plots."""
