"""Ready-made studies, one TOML file each: `interp run NAME`."""
