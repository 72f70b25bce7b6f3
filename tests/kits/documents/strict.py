"""``python strict.py SCRIPT`` runs a script as ``python -W error`` does, also where it is a fork.

Its objects are freed at the end, because a fork frees none: a warning of an open file shows.
"""

import gc
import os
import runpy
import sys
import warnings

if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    del sys.argv[0]
    warnings.simplefilter("error")
    runpy.run_path(sys.argv[0], run_name="__main__")
    gc.collect()
