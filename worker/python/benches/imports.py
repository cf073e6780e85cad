"""Time of `import tradewind`, without torch, beside a Python that imports nothing."""

import statistics
import subprocess
import sys

TIMED = "import time; begin = time.perf_counter(); import tradewind; print(time.perf_counter() - begin)"
RUNS = 21

seconds = [float(subprocess.check_output([sys.executable, "-c", TIMED])) for _ in range(RUNS)]
low, median, high = statistics.quantiles(seconds, n=4)
print(f"import tradewind: median {1e3 * median:.1f} ms, quartiles {1e3 * low:.1f} and {1e3 * high:.1f}, {RUNS} times")
