import sys

from oplogc.tail.cli import main

sys.exit(main())
