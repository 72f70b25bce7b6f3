module oplog.example/oplog

go 1.23
