from oplogd.cli import main

main()
