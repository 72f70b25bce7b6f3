// Command consumer follows an oplog agent and prints each event.
//
//	consumer -url http://localhost:8042 -types video,user -start 0 -state consumer.state
//
// With -state it continues at the saved position. A position is saved after its event was printed, never before: a crash
// repeats events and loses none. With -count N it ends after N operations. OPLOG_PASSWORD holds the agent's password.
// With -token-file the token in this file is sent instead. It is read again before each connection.
//
// Exit status: 0 after -count or a signal, with the position saved. 1 if the agent refuses for good, or the state file
// cannot be used. 2 for a mistake in the command line.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"oplog.example/oplog"
	"oplog.example/oplog/internal/command"
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills

	flags := flag.NewFlagSet("consumer", flag.ContinueOnError)
	url := flags.String("url", "http://localhost:8042", "the agent")
	types := flags.String("types", "", "only these types, comma-separated")
	parents := flags.String("parents", "", "only with one of these parents, comma-separated")
	start := flags.String("start", "", "event id to start after; 0 for a copy of all objects")
	name := flags.String("name", "", "name of this consumer in the agent's /status and /metrics")
	shard := flags.String("shard", "", "only one shard, as `I/N`: 3/8 is shard 3 of the shards 0 to 7")
	state := flags.String("state", "", "file that keeps the position; a position in it overrides -start")
	count := flags.Uint("count", 0, "end after this number of operations; 0: never")
	asJSON := flags.Bool("json", false, "print events as JSON")
	heartbeat := command.Seconds(flags, "heartbeat-timeout", 40*time.Second, "reconnect after this silence; agents send something every 25 s")
	timeout := command.Seconds(flags, "timeout", 30*time.Second, "longest wait for an answer")
	backoff := command.Backoff(flags)
	credentials := command.TokenFile(flags)
	command.ParseFlags(flags)
	password, token := credentials()
	options := oplog.ConsumerOptions{
		Types: names("types", *types), Parents: names("parents", *parents), Start: *start, Name: *name, Shard: *shard,
		Password: password, TokenFunc: token,
		Timeout: *timeout, HeartbeatTimeout: *heartbeat, Backoff: *backoff,
	}
	// Without the state file an error is a mistake in the command line.
	if _, err := oplog.NewConsumer(*url, options); err != nil {
		command.Usage(err.Error())
	}
	options.StateFile = *state
	consumer, err := oplog.NewConsumer(*url, options)
	if err != nil {
		command.Fail(err)
	}
	if err := consumer.Follow(ctx, printer(*count, *asJSON)); err != nil {
		command.Fail(err)
	}
}

func names(flagName, given string) []string {
	if given == "" {
		return nil
	}
	listed := strings.Split(given, ",")
	if slices.Contains(listed, "") {
		command.Usage("-" + flagName + ": give names separated by commas, none of them empty")
	}
	return listed
}

// printer returns a handler that prints each event on a line. It stops after a number of operations; 0: never.
func printer(operations uint, asJSON bool) func(oplog.Event) error {
	line := textLine
	if asJSON {
		line = jsonLine
	}
	return func(event oplog.Event) error {
		if _, err := os.Stdout.Write(line(event)); err != nil {
			return err
		}
		if event.IsOperation() {
			if operations--; operations == 0 {
				return oplog.ErrStop
			}
		}
		return nil
	}
}

func textLine(event oplog.Event) []byte {
	if !event.IsOperation() {
		return []byte(event.Name + "\n")
	}
	return fmt.Appendf(nil, "%s %s %v\n", event.Name, event.Key(), event.Parents)
}

func jsonLine(event oplog.Event) []byte {
	shown := map[string]any{"id": event.Position, "event": event.Name}
	if event.IsOperation() {
		shown["type"], shown["object"], shown["parents"] = event.Type, event.ID, event.Parents
		shown["timestamp"] = event.Timestamp.Format("2006-01-02T15:04:05.000Z")
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	encoder.Encode(shown) // strings and lists of strings: it cannot fail
	return line.Bytes()
}
