"""Where weights come from. Each module turns one kind of source into a `Checkpoint`."""
