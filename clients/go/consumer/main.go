// Command consumer follows an oplog agent and prints each event. It needs nothing but the standard library.
//
//	consumer -url http://localhost:8042 -types video,user -start 0 -state consumer.state
//
// With -state it continues from the saved position. The position is saved after an event was handled, never before, so a crash
// repeats events and loses none. With -count N it ends after N operations. OPLOG_PASSWORD holds the agent's password.
//
// Exit status: 0 after -count or a signal, with the position saved; 1 when the agent refuses for good, or the state
// file cannot be used; 2 for a mistake in the command line.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"oplog.example/clients/internal/agent"
)

// printing writes a line for each event, and returns errEnough with the last of so many operations; 0: there is no last.
func printing(operations int, asJSON bool) func(Event) error {
	line := text
	if asJSON {
		line = jsonLine
	}
	return func(event Event) error {
		if _, err := os.Stdout.Write(line(event)); err != nil {
			return err
		}
		if event.IsOperation() {
			if operations--; operations == 0 {
				return errEnough
			}
		}
		return nil
	}
}

func text(event Event) []byte {
	if !event.IsOperation() {
		return []byte(event.Name + "\n")
	}
	return fmt.Appendf(nil, "%s %s/%s %v\n", event.Name, event.Type, event.Object, event.Parents)
}

func jsonLine(event Event) []byte {
	var shown any = event
	if !event.IsOperation() {
		shown = map[string]string{"id": event.ID, "event": event.Name}
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	encoder.Encode(shown) // strings and lists of strings: it cannot fail
	return line.Bytes()
}

func names(flagName, given string) string {
	if given != "" && slices.Contains(strings.Split(given, ","), "") {
		agent.Usage("-" + flagName + ": give names with a comma between them, none of them empty")
	}
	return given
}

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills

	flags := flag.NewFlagSet("consumer", flag.ContinueOnError)
	base := flags.String("url", "http://localhost:8042", "the agent")
	types := flags.String("types", "", "only these types, comma-separated")
	parents := flags.String("parents", "", "only with one of these parents, comma-separated")
	start := flags.String("start", "", "event id to start after; 0 for a full copy")
	state := flags.String("state", "", "file that keeps the position; it comes before -start")
	count := flags.Uint("count", 0, "end after so many operations; 0: never")
	asJSON := flags.Bool("json", false, "print events as JSON")
	heartbeat := agent.Seconds(flags, "heartbeat-timeout", 40*time.Second, "reconnect after so much silence; agents send something every 25")
	timeout := agent.Seconds(flags, "timeout", 30*time.Second, "longest wait for an answer")
	backoff := agent.Pauses(flags)
	agent.ParseFlags(flags)
	address, err := agent.ParseAddress(*base, os.Getenv("OPLOG_PASSWORD"), "http", "https")
	if err != nil {
		agent.Usage("-url: " + err.Error())
	}
	if *start != "" && !eventID.MatchString(*start) {
		agent.Usage("-start: give an event id (up to 13 digits, or 24 lower-case hexadecimal digits)")
	}
	filters := url.Values{"checkpoint": {"1"}}
	if listed := names("types", *types); listed != "" {
		filters.Set("types", strings.ToLower(listed))
	}
	if listed := names("parents", *parents); listed != "" {
		filters.Set("parents", listed)
	}

	c := &consumer{
		address: address, filters: filters, client: agent.Client(), timeout: *timeout, heartbeat: *heartbeat,
		backoff: backoff, position: *start, handle: printing(int(*count), *asJSON),
	}
	if *state != "" {
		if c.state, err = openState(*state); err != nil {
			log.Fatal(err)
		}
		if c.state.position != "" {
			c.position = c.state.position
		}
		go c.state.keepSaving()
	}
	if err := c.run(ctx); err != nil {
		log.Fatal(agent.Plain(err.Error()))
	}
}
