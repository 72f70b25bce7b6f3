// Command producer reads operations from standard input, one JSON object on each line, and sends them to an oplog agent.
//
//	producer -url udp://localhost:8042 < operations   # nothing confirms that they arrive
//	producer -url http://localhost:8042 < operations  # at least once, in batches
//
// Lines that come slowly are sent after a second at most. OPLOG_PASSWORD holds the agent's ingest password.
// With -token-file the token in this file is sent instead. It is read again when the agent refuses it.
//
// Exit status: 0 when all operations are delivered (UDP: given to the network), also after a signal, which ends the
// reading. 1 when an operation is rejected or not delivered. 2 for a mistake in the command line.
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
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"oplog.example/oplog"
	"oplog.example/oplog/internal/command"
)

const (
	lingerTime = time.Second      // longest wait of an operation for others in the same request
	closeTime  = 30 * time.Second // after a signal: time to send the lines already read
	quietTime  = 100 * time.Millisecond
	lineBytes  = 128 << 10 // more than an operation may have
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)

	flags := flag.NewFlagSet("producer", flag.ContinueOnError)
	url := flags.String("url", "udp://localhost:8042", "the agent: udp://host:port or http://host:port")
	timeout := command.Seconds(flags, "timeout", 30*time.Second, "longest wait for an answer")
	backoff := command.Backoff(flags)
	credentials := command.TokenFile(flags)
	command.ParseFlags(flags)
	password, token := credentials()
	rejected := 0
	reject := func(reason oplog.RejectedError) {
		rejected++
		log.Print(reason)
	}
	producer, err := oplog.NewProducer(*url, oplog.ProducerOptions{
		Password: password, TokenFunc: token, Timeout: *timeout, Backoff: *backoff, Rejected: reject,
		Linger: -1, // run flushes, so that a refusal ends the program
	})
	var network net.Error // an unknown host
	switch {
	case errors.As(err, &network):
		command.Fail(err)
	case err != nil:
		command.Usage("-url: " + err.Error())
	}
	context.AfterFunc(ctx, func() {
		stop() // a second signal kills
		producer.SetDeadline(time.Now().Add(closeTime))
	})
	if err := run(ctx, producer, os.Stdin, reject); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("ended by a signal: %w", err)
		}
		command.Fail(err)
	}
	if rejected > 0 {
		os.Exit(1)
	}
}

// line is a line of the input.
type line struct {
	number int // from 1
	raw    []byte
}

// run sends until the input or ctx ends, and then the lines already read.
func run(ctx context.Context, producer *oplog.Producer, from io.Reader, reject func(oplog.RejectedError)) error {
	lines := make(chan line)
	ended := make(chan error, 1)
	go func() { ended <- read(input{ctx, from}, lines) }()
	linger := time.NewTicker(lingerTime)
	defer linger.Stop()
	sending := context.Background() // a signal ends the reading; the deadline ends the sending
	stopped := ctx.Done()
	var quiet <-chan time.Time // fires after a signal, when no line that was read is left
	for {
		select {
		case next, more := <-lines:
			if !more {
				return errors.Join(producer.Close(sending), <-ended)
			}
			err := producer.SendJSON(sending, next.raw, fmt.Sprintf("line %d", next.number))
			var rejected oplog.RejectedError
			if errors.As(err, &rejected) {
				reject(rejected)
			} else if err != nil {
				return err
			}
		case <-linger.C:
			if err := producer.Flush(sending); err != nil {
				return err
			}
		case <-stopped:
			stopped = nil
		case <-quiet:
			return producer.Close(sending)
		}
		if stopped == nil {
			quiet = time.After(quietTime)
		}
	}
}

// read passes on the lines of the input without blank ones. It passes on only a part of a line that is too long.
func read(from io.Reader, lines chan<- line) error {
	defer close(lines)
	reader := bufio.NewReaderSize(from, lineBytes)
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
			return nil // the line is not complete
		case err != nil && err != io.EOF:
			return fmt.Errorf("standard input cannot be read: %w", err)
		}
		if len(raw) > 0 {
			lines <- line{number, raw}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// input ends the reading when ctx ends.
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
