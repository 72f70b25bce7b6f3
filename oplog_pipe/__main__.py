import sys

from oplog_pipe.cli import main

sys.exit(main())
