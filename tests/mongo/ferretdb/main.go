// A FerretDB with its SQLite backend, for tests: ferretdb ADDRESS FOLDER prints its URL and runs until it is killed.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: ferretdb ADDRESS FOLDER")
	}
	// It lives on little data and makes much garbage: collecting that at every doubling took half of its time.
	debug.SetGCPercent(400)
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: os.Args[1]},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Handler:   "sqlite",
		SQLiteURL: "file:" + os.Args[2] + "/?_pragma=synchronous(off)", // no test pulls the plug
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { fmt.Println(server.MongoDBURI()) }() // answers once Run has begun to listen
	if err := server.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
