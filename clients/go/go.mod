module oplog.example/clients

go 1.21
