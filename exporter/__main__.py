"""`python -m exporter` is `vllm-headroom`."""

import sys

from exporter.cli import main

sys.exit(main())
