"""The dashboard: pages over the same analyses and results as Python and the command line. `app.py` is what runs."""
