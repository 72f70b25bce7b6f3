// A FerretDB with its SQLite backend, for tests: ferretdb [-together] ADDRESS FOLDER prints its URL and runs until it is killed.
//
// Clients reach it through a gate that lets one write command of a database pass at a time, since FerretDB's updates are not atomic: without
// the gate (-together) a compare-and-set that two clients race for now and again has two winners.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/url"
	"os"
	"runtime/debug"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	together := flag.Bool("together", false, "let write commands pass at the same time")
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("usage: ferretdb [-together] ADDRESS FOLDER")
	}
	// It lives on little data and makes much garbage: collecting that at every doubling took half of its time.
	debug.SetGCPercent(1600)
	listener, err := net.Listen("tcp", flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Handler:   "sqlite",
		SQLiteURL: "file:" + flag.Arg(1) + "/?_pragma=synchronous(off)", // no test pulls the plug
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		inner, err := url.Parse(server.MongoDBURI()) // answers once Run has begun to listen
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("mongodb://%s/\n", listener.Addr())
		gate := &gate{server: inner.Host, together: *together}
		log.Fatal(gate.serve(listener))
	}()
	if err := server.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
