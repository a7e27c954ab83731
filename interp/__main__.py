"""`python -m interp`: the command line."""

import sys

from interp import main

sys.exit(main())
