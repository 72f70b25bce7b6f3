"""Places of the documents that tests read by name."""

from tests.kits.paths import ROOT

DOCS = ROOT / "docs"

QUICKSTART = DOCS / "start/quickstart.md"
PICTURE = DOCS / "start/dashboard.png"
DARK_PICTURE = DOCS / "start/dashboard-dark.png"

HOWTO = DOCS / "howto"
OUTBOX = HOWTO / "outbox.md"

REFERENCE = DOCS / "reference/reference.md"
CLIENTS = DOCS / "reference/clients.md"
PIPE = DOCS / "reference/pipe.md"
RELAY = DOCS / "reference/relay.md"
SYNC = DOCS / "reference/sync.md"

OPERATIONS = DOCS / "operate/operations.md"
DEPLOYMENT = DOCS / "operate/deployment.md"
MIGRATION = DOCS / "operate/migration.md"
OPERATE_PIPE = DOCS / "operate/pipe.md"
OPERATE_RELAY = DOCS / "operate/relay.md"

DESIGN = DOCS / "internals/design.md"
