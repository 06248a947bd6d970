# SPDX-License-Identifier: Apache-2.0
"""`python -m stepscope`."""

import sys

from stepscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
