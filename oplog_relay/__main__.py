import sys

from oplog_relay.cli import main

sys.exit(main())
