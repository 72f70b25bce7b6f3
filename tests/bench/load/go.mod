module oplog-bench-load

go 1.22
