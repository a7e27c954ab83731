"""Speed and memory beside `transformers`, in one run: `make bench`, or `python -m benchmarks [name …]`.

Every comparison interleaves its candidates and reports medians, so that a noisy neighbour slows both alike. Ratios are
what to read; milliseconds belong to the machine. Nothing here is a test.
"""
