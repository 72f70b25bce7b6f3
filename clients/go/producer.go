package oplog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"oplog.example/oplog/internal/text"
)

// ErrClosed is returned by [Producer.Send] after [Producer.Close].
var ErrClosed = errors.New("the producer is closed")

// ProducerOptions are optional.
type ProducerOptions struct {
	Password string            // a password in the URL overrides it
	Token    string            // instead of a password
	Timeout  time.Duration     // longest wait for an answer, its body included; 0: 30 s
	Backoff  Backoff           // pauses between attempts
	Log      func(line string) // receives one line for each failed attempt; nil: log.Print

	// TokenFunc returns a fresh token, instead of a password. It is called before the first request, and again if the agent
	// refuses its token. If it fails, the operations wait and are tried again. Its context ends after Timeout.
	TokenFunc func(ctx context.Context) (string, error)

	// Linger is the longest wait of an operation for others in the same request; 0: 100 ms. Negative: until Flush or Close,
	// 1,000 operations or 1 MiB. After a failure operations wait as long as Backoff and the agent say.
	Linger time.Duration

	// Rejected receives an error for each request of which the agent refuses operations; the other operations are
	// delivered. It may be called by another goroutine, and must not call the producer. Nil: log.Print logs the error.
	Rejected func(RejectedError)
}

// RejectedError says that operations are not sent, or that the agent refuses them. Trying again does not help.
type RejectedError struct {
	Label  string // label of the first of these operations: its key, or the label given to SendJSON
	Reason string
	Count  int // operations that are refused
}

func (e RejectedError) Error() string {
	message := fmt.Sprintf("%s is rejected: %s", e.Label, e.Reason)
	if e.Count > 1 {
		message += fmt.Sprintf(" (the agent refuses %d operations of this request)", e.Count)
	}
	return text.OneLine(message)
}

// Counters count operations.
type Counters struct {
	Sent      int // taken by Send or SendJSON
	Delivered int // durable in the store; UDP: given to the network
	Rejected  int
	Waiting   int // in memory, not confirmed yet
}

// delivery brings operations to the agent. It is safe for use by several goroutines.
type delivery interface {
	take(op queued) (isFull bool, err error) // isFull: flush now
	flush(ctx context.Context) error
	waiting() int
	setDeadline(time.Time)
	close() error
}

// Producer sends operations. It is safe for use by several goroutines.
//
// Over HTTP operations wait in memory until 1,000 of them or 1 MiB have come, for Linger at most, or until Flush. Each is
// delivered at least once and in order. Close the producer at the end: operations that wait are lost with the program.
type Producer struct {
	delivery delivery

	taking sync.Mutex // guards closed: no operation comes after Close
	closed bool

	mutex    sync.Mutex
	counters Counters
}

// NewProducer returns a producer for an address such as http://localhost:8042 or udp://localhost:8042. Over UDP the host is
// looked up once, here, and the port is 8042 if none is given.
func NewProducer(agent string, options ProducerOptions) (*Producer, error) {
	tokens, err := newTokens(options.Token, options.TokenFunc)
	if err != nil {
		return nil, err
	}
	base, err := parseAddress(agent, options.Password, tokens, "udp", "http", "https")
	if err != nil {
		return nil, err
	}
	if options.Timeout < 0 {
		return nil, errors.New("Timeout must not be negative")
	}
	pauses, err := options.Backoff.pauses()
	if err != nil {
		return nil, err
	}
	p := &Producer{}
	settled := settled{
		delivered: func(count int) { p.count(func(c *Counters) { c.Delivered += count }) },
		rejected: func(rejected RejectedError) {
			p.count(func(c *Counters) { c.Rejected += rejected.Count })
			if options.Rejected == nil {
				log.Print(rejected)
			} else {
				options.Rejected(rejected)
			}
		},
	}
	if base.url.Scheme == "udp" {
		p.delivery, err = newUDPDelivery(base.url, settled.delivered)
	} else {
		timeout := orDefault(options.Timeout, 30*time.Second)
		p.delivery = newHTTPDelivery(base, timeout, orDefault(options.Linger, 100*time.Millisecond), pauses, orLogPrint(options.Log), settled)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// settled receives the outcome of operations.
type settled struct {
	delivered func(count int)
	rejected  func(RejectedError)
}

func (p *Producer) count(change func(*Counters)) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	change(&p.counters)
}

// Send sends an operation. It returns the same errors as SendJSON.
func (p *Producer) Send(ctx context.Context, operation Operation) error {
	label := operation.Type + "/" + operation.ID
	raw, err := operation.JSON()
	if err != nil {
		return RejectedError{label, err.Error(), 1}
	}
	return p.enqueue(ctx, queued{label: label, raw: raw})
}

// SendJSON sends an operation given as a JSON object. Its bytes are sent as they are, except for line breaks. The label
// names the operation in a [RejectedError].
//
// It returns a [RejectedError] for an operation that an agent would refuse, and over UDP for one that cannot be sent. When
// a batch is full it waits until the agent has stored it. It returns an error if the agent refuses the batch for good, or
// if ctx ends or the deadline passes. The operations then stay with the producer, and Flush tries again.
func (p *Producer) SendJSON(ctx context.Context, operation []byte, label string) error {
	if err := checkOperation(operation); err != nil {
		return RejectedError{label, err.Error(), 1}
	}
	// JSON has line breaks only between its parts.
	raw := bytes.ReplaceAll(bytes.ReplaceAll(operation, []byte("\n"), []byte(" ")), []byte("\r"), []byte(" "))
	return p.enqueue(ctx, queued{label: label, raw: raw})
}

func (p *Producer) enqueue(ctx context.Context, op queued) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	isFull, err := p.take(op)
	if err != nil || !isFull {
		return err
	}
	return p.Flush(ctx)
}

func (p *Producer) take(op queued) (isFull bool, err error) {
	p.taking.Lock()
	defer p.taking.Unlock()
	if p.closed {
		return false, ErrClosed
	}
	p.count(func(c *Counters) { c.Sent++ })
	isFull, err = p.delivery.take(op)
	if _, rejected := err.(RejectedError); rejected {
		p.count(func(c *Counters) { c.Rejected++ })
	}
	return isFull, err
}

// Flush waits until all operations sent before are durable or rejected. It returns an error if the agent refuses for
// good, or if ctx ends or the deadline passes; the operations then stay with the producer. Over UDP it does nothing.
func (p *Producer) Flush(ctx context.Context) error { return p.delivery.flush(ctx) }

// Close refuses further operations and flushes. Operations that cannot be delivered are lost; the error tells their number.
func (p *Producer) Close(ctx context.Context) error {
	p.taking.Lock()
	wasClosed := p.closed
	p.closed = true
	p.taking.Unlock()
	if wasClosed {
		return nil
	}
	return errors.Join(p.delivery.flush(ctx), p.delivery.close())
}

// SetDeadline sets the time at which attempts end, also for calls that wait already; the zero time means never. A call
// whose next attempt would come later returns at once.
func (p *Producer) SetDeadline(deadline time.Time) { p.delivery.setDeadline(deadline) }

// Counters returns the counters so far.
func (p *Producer) Counters() Counters {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	counters := p.counters
	counters.Waiting = p.delivery.waiting()
	return counters
}
