"""python bench/run.py [--rows P1,P4] [--quick | --smoke] [--json FILE] [--readme]"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.command import main

main()
