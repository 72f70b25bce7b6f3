// A NATS server with a JetStream stream in files, for benchmarks: nats [-sync-always] FOLDER prints its port and runs until it is killed.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	startTimeout = 30 * time.Second
	subject      = "bench"
	messageBytes = 100
)

func main() {
	syncAlways := flag.Bool("sync-always", false, "have each message on disk before it is acknowledged")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: nats [-sync-always] FOLDER")
	}
	natsServer, err := server.NewServer(&server.Options{
		Host:       "127.0.0.1",
		Port:       server.RANDOM_PORT,
		JetStream:  true,
		StoreDir:   flag.Arg(0),
		SyncAlways: *syncAlways,
		NoLog:      true,
	})
	if err != nil {
		log.Fatal(err)
	}
	natsServer.Start()
	if !natsServer.ReadyForConnections(startTimeout) {
		log.Fatal("the server does not listen")
	}
	if err := createStream(natsServer.ClientURL()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(natsServer.Addr().(*net.TCPAddr).Port)
	natsServer.WaitForShutdown()
}

// createStream creates the stream with one message, for reads.
func createStream(url string) error {
	connection, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer connection.Close()
	client, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if _, err = client.CreateStream(ctx, jetstream.StreamConfig{
		Name:        "BENCH",
		Subjects:    []string{subject},
		Storage:     jetstream.FileStorage,
		AllowDirect: true,
	}); err != nil {
		return err
	}
	_, err = client.Publish(ctx, subject, bytes.Repeat([]byte("x"), messageBytes))
	return err
}
