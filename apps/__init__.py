"""What people use without writing Python: the command line."""
