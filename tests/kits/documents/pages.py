"""Places of the documents that tests read by name."""

from tests.kits.paths import ROOT

DOCS = ROOT / "docs"

QUICKSTART = DOCS / "start/quickstart.md"
PICTURE = DOCS / "start/dashboard.png"
DARK_PICTURE = DOCS / "start/dashboard-dark.png"

HOWTO = DOCS / "howto"
OUTBOX = HOWTO / "outbox.md"

REFERENCE = DOCS / "reference"
FLAGS = REFERENCE / "flags.md"
COMMANDS = REFERENCE / "commands.md"
INGEST = REFERENCE / "ingest.md"
STREAM = REFERENCE / "stream.md"
PASSWORDS = REFERENCE / "passwords.md"
ERRORS = REFERENCE / "errors.md"
CLIENTS = REFERENCE / "clients.md"
# The pages of the clients by language, as in the folder clients/, and that of the commands.
CLIENT = {
    "go": REFERENCE / "client-go.md",
    "js": REFERENCE / "client-javascript.md",
    "php": REFERENCE / "client-php.md",
    "python": REFERENCE / "client-python.md",
    "sh": REFERENCE / "client-commands.md",
}
PIPE = REFERENCE / "pipe.md"
RELAY = REFERENCE / "relay.md"
SPARK = REFERENCE / "spark.md"
SYNC = REFERENCE / "sync.md"
SPARK_TOPICS = REFERENCE / "spark-topics.md"

MONITORING = DOCS / "operate/monitoring.md"
TROUBLE = DOCS / "operate/trouble.md"
DEPLOYMENT = DOCS / "operate/deployment.md"
MIGRATION = DOCS / "operate/migration.md"
OPERATE_PIPE = DOCS / "operate/pipe.md"
OPERATE_PIPE_SPARK = DOCS / "operate/pipe-spark.md"
OPERATE_RELAY = DOCS / "operate/relay.md"
OPERATE_SPARK = DOCS / "operate/spark.md"

INTERNALS = DOCS / "internals"
DESIGN = INTERNALS / "design.md"
PROGRAMS = INTERNALS / "programs.md"
