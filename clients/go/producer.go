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
	Timeout  time.Duration     // longest wait for an answer, its body included; 0: 30 s
	Backoff  Backoff           // pauses between attempts
	Log      func(line string) // receives one line for each failed attempt; nil: log.Print

	// Rejected receives an error for each request of which the agent refuses operations; the other operations are
	// delivered. It must not call the producer. Nil: the error is logged by log.Print.
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

// queued is an operation as it is sent.
type queued struct {
	label string
	raw   []byte
}

// delivery brings operations to the agent. One goroutine at a time uses it.
type delivery interface {
	send(ctx context.Context, op queued) error
	flush(ctx context.Context) error
	waiting() int
	setDeadline(time.Time)
	close() error
}

// Producer sends operations. It is safe for use by several goroutines.
//
// Over HTTP operations wait in memory until 1,000 of them or 1 MiB have come, or until Flush: call Flush when operations
// come slowly. Each is delivered at least once and in order.
type Producer struct {
	turn     chan struct{} // holds one element while no goroutine uses delivery and closed
	delivery delivery
	closed   bool

	mutex    sync.Mutex
	counters Counters
}

// NewProducer returns a producer for an address such as http://localhost:8042 or udp://localhost:8042. Over UDP the host is
// looked up once, here, and the port is 8042 if none is given.
func NewProducer(agent string, options ProducerOptions) (*Producer, error) {
	base, err := parseAddress(agent, options.Password, "udp", "http", "https")
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
	p := &Producer{turn: make(chan struct{}, 1)}
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
		p.delivery = newHTTPDelivery(base, timeout, pauses, orLogPrint(options.Log), settled)
	}
	if err != nil {
		return nil, err
	}
	p.turn <- struct{}{}
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
	return p.enqueue(ctx, queued{label, raw})
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
	return p.enqueue(ctx, queued{label, raw})
}

func (p *Producer) enqueue(ctx context.Context, op queued) error {
	return p.inTurn(ctx, func() error {
		if p.closed {
			return ErrClosed
		}
		p.count(func(c *Counters) { c.Sent++ })
		err := p.delivery.send(ctx, op)
		if _, rejected := err.(RejectedError); rejected {
			p.count(func(c *Counters) { c.Rejected++ })
		}
		return err
	})
}

// inTurn runs a function when no other one uses the delivery. It returns an error if ctx ends before.
func (p *Producer) inTurn(ctx context.Context, run func() error) error {
	select {
	case <-p.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { p.turn <- struct{}{} }()
	err := run()
	p.count(func(c *Counters) { c.Waiting = p.delivery.waiting() })
	return err
}

// Flush waits until all operations sent before are durable or rejected. It returns an error if the agent refuses for
// good, or if ctx ends or the deadline passes; the operations then stay with the producer. Over UDP it does nothing.
func (p *Producer) Flush(ctx context.Context) error {
	return p.inTurn(ctx, func() error { return p.delivery.flush(ctx) })
}

// Close refuses further operations and flushes. Operations that cannot be delivered are lost; the error tells their number.
func (p *Producer) Close(ctx context.Context) error {
	return p.inTurn(ctx, func() error {
		if p.closed {
			return nil
		}
		p.closed = true
		return errors.Join(p.delivery.flush(ctx), p.delivery.close())
	})
}

// SetDeadline sets the time at which attempts end, also for calls that wait already; the zero time means never. A call
// whose next attempt would come later returns at once.
func (p *Producer) SetDeadline(deadline time.Time) { p.delivery.setDeadline(deadline) }

// Counters returns the counters so far.
func (p *Producer) Counters() Counters {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.counters
}
