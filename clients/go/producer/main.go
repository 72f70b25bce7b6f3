// Command producer sends the operations it reads from standard input, one JSON object a line, to an oplog agent. It
// needs nothing but the standard library.
//
//	producer -url udp://localhost:8042 < operations   # fire and forget
//	producer -url http://localhost:8042 < operations  # at least once, in batches
//
// Operations that are read slowly are sent after a second at most. OPLOG_PASSWORD holds the agent's ingest password.
//
// Exit status: 0 when everything was delivered (UDP: given to the network), also after a signal, which ends the reading;
// 1 when an operation was rejected or not delivered; 2 for a mistake in the command line.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"oplog.example/clients/internal/agent"
)

const (
	lingerTime = time.Second      // an operation waits so long for others to share its request
	closeTime  = 30 * time.Second // after a signal, to send the lines already read
	quietTime  = 100 * time.Millisecond
)

type sender interface {
	send(context.Context, operation) error
	flush(context.Context) error
}

var rejected = 0

// reject tells that an operation is not sent, and goes on.
func reject(line int, reason error) {
	rejected++
	log.Print(agent.Plain(fmt.Sprintf("line %d is rejected: %v", line, reason)))
}

// input is standard input until ctx ends.
type input struct {
	ctx    context.Context
	source io.Reader
}

var errStopped = errors.New("stopped")

func (i input) Read(buffer []byte) (int, error) {
	if i.ctx.Err() != nil {
		return 0, errStopped
	}
	return i.source.Read(buffer)
}

// read passes on the lines of the input. One that is too long is passed on in part.
func read(from io.Reader, lines chan<- operation) error {
	defer close(lines)
	reader := bufio.NewReaderSize(from, 2*maxOperation)
	for number := 1; ; number++ {
		raw, err := reader.ReadSlice('\n')
		if err == nil || err == io.EOF {
			raw = bytes.Trim(raw, " \t\r\n")
		}
		raw = bytes.Clone(raw)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = reader.ReadSlice('\n')
		}
		switch {
		case err == errStopped:
			return nil // the line is not whole
		case err != nil && err != io.EOF:
			return fmt.Errorf("standard input cannot be read: %w", err)
		}
		if len(raw) > 0 {
			lines <- operation{number, raw}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// run sends until the input or ctx ends. Lines already read are then sent until giveUp ends.
func run(ctx, giveUp context.Context, to sender, from io.Reader) error {
	lines := make(chan operation)
	ended := make(chan error, 1)
	go func() { ended <- read(input{ctx, from}, lines) }()
	linger := time.NewTicker(lingerTime)
	defer linger.Stop()
	stopped := ctx.Done()
	var quiet <-chan time.Time // after stopped: nothing that was read is left
	for {
		select {
		case op, more := <-lines:
			if !more {
				return errors.Join(to.flush(giveUp), <-ended)
			}
			if err := check(op.raw); err != nil {
				reject(op.line, err)
			} else if err := to.send(giveUp, op); err != nil {
				return err
			}
		case <-linger.C:
			if err := to.flush(giveUp); err != nil {
				return err
			}
		case <-stopped:
			stopped = nil
		case <-quiet:
			return to.flush(giveUp)
		}
		if stopped == nil {
			quiet = time.After(quietTime)
		}
	}
}

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	giveUp, cancel := context.WithCancel(context.Background())
	context.AfterFunc(ctx, func() {
		stop() // a second signal kills
		time.AfterFunc(closeTime, cancel)
	})

	flags := flag.NewFlagSet("producer", flag.ContinueOnError)
	base := flags.String("url", "udp://localhost:8042", "the agent: udp://host:port or http://host:port")
	timeout := agent.Seconds(flags, "timeout", 30*time.Second, "longest wait for an answer")
	backoff := agent.Pauses(flags)
	agent.ParseFlags(flags)
	address, err := agent.ParseAddress(*base, os.Getenv("OPLOG_PASSWORD"), "udp", "http", "https")
	if err != nil {
		agent.Usage("-url: " + err.Error())
	}
	var to sender = newHTTPSender(ctx, address, *timeout, backoff)
	if address.URL.Scheme == "udp" {
		if to, err = newUDPSender(address.URL); err != nil {
			log.Fatal(err)
		}
	}
	if err := run(ctx, giveUp, to, os.Stdin); err != nil {
		log.Fatal(agent.Plain(err.Error()))
	}
	if rejected > 0 {
		os.Exit(1)
	}
}
