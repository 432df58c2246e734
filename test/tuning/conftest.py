"""Makes the compiler's cases importable."""

import sys

from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "compiler")]
