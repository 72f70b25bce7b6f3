import sys

from oplogc.ctl.cli import main

sys.exit(main())
