package oplog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"regexp"
	"slices"
	"sync"
	"time"

	"oplog.example/oplog/internal/text"
)

// livelyAfter is the life of a connection after which the pauses start over, even without an event.
const livelyAfter = 5 * time.Second

var consumerName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

// ErrStop ends [Consumer.Follow] when its handler returns it. The event counts as handled.
var ErrStop = errors.New("stop following")

// ConsumerOptions are optional: the zero value follows all new operations and keeps no position.
type ConsumerOptions struct {
	Types    []string // only operations of these types, in any case
	Parents  []string // only operations with one of these parents
	Start    string   // event id to start after; "0" for a copy of all objects; empty: the next operation
	Name     string   // name of this consumer in the agent's /status and /metrics: ASCII letters, digits, '.', '_', '-'
	Shard    string   // only the entries of one shard: "3/8" is shard 3 of the shards 0 to 7; at most 256 shards. Empty: all
	Password string   // a password in the URL overrides it
	Token    string   // instead of a password

	// TokenFunc returns a fresh token, instead of a password. It is called before each connection. If it fails, or the agent
	// refuses its token, the consumer tries again as after a lost connection. Its context ends after Timeout.
	TokenFunc func(ctx context.Context) (string, error)

	// StateFile is the path of a file that keeps the position. A position in the file overrides Start. The file is
	// locked: only one consumer can use it.
	StateFile string

	Timeout          time.Duration     // longest wait for the head of an answer; 0: 30 s
	HeartbeatTimeout time.Duration     // longest silence of a connection; 0: 40 s. Agents send something every 25 s
	Backoff          Backoff           // pauses between attempts
	Log              func(line string) // receives one line for each failed connection; nil: log.Print
}

// Consumer follows an agent. Its methods Follow and Events must not run at the same time.
type Consumer struct {
	connector connector
	timeout   time.Duration
	heartbeat time.Duration
	pauses    *pauses
	state     *stateFile
	log       func(string)

	mutex    sync.Mutex
	position string

	unknownLogged bool // an unknown event name was logged
}

// NewConsumer returns a consumer for the agent at a URL such as http://localhost:8042. It opens the state file, but does
// not connect. It returns an error for a bad URL or option, and for a state file that cannot be used.
func NewConsumer(agent string, options ConsumerOptions) (*Consumer, error) {
	tokens, err := newTokens(options.Token, options.TokenFunc)
	if err != nil {
		return nil, err
	}
	base, err := parseAddress(agent, options.Password, tokens, "http", "https")
	if err != nil {
		return nil, err
	}
	if options.Start != "" && !eventID.MatchString(options.Start) {
		return nil, errors.New("Start: give an event id (up to 13 digits, or 24 lower-case hexadecimal digits)")
	}
	if slices.Contains(options.Types, "") || slices.Contains(options.Parents, "") {
		return nil, errors.New("Types and Parents must not hold an empty string")
	}
	if options.Name != "" && !consumerName.MatchString(options.Name) {
		return nil, errors.New("Name: give 1 to 100 ASCII letters, digits, '.', '_' or '-'")
	}
	if options.Shard != "" && !isShard(options.Shard) {
		return nil, errors.New("Shard: give I/N, such as 3/8, with 0 <= I < N <= 256")
	}
	if options.Timeout < 0 || options.HeartbeatTimeout < 0 {
		return nil, errors.New("Timeout and HeartbeatTimeout must not be negative")
	}
	pauses, err := options.Backoff.pauses()
	if err != nil {
		return nil, err
	}
	c := &Consumer{
		connector: connector{base: base, parameters: parametersOf(options), shard: options.Shard, client: newHTTPClient()},
		timeout:   orDefault(options.Timeout, 30*time.Second),
		heartbeat: orDefault(options.HeartbeatTimeout, 40*time.Second),
		pauses:    pauses,
		log:       orLogPrint(options.Log),
		position:  options.Start,
	}
	if options.StateFile != "" {
		if c.state, err = openStateFile(options.StateFile); err != nil {
			return nil, err
		}
		if c.state.position != "" {
			c.position = c.state.position
		}
	}
	return c, nil
}

func orDefault(given, otherwise time.Duration) time.Duration {
	if given == 0 {
		return otherwise
	}
	return given
}

func orLogPrint(given func(string)) func(string) {
	if given == nil {
		return func(line string) { log.Print(line) }
	}
	return given
}

// Position returns the position after the last handled event. It is empty before the agent has sent the first position.
func (c *Consumer) Position() string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.position
}

// Close releases the state file. Call it when Follow has returned.
func (c *Consumer) Close() error { return c.state.close() }

// Follow calls handle for each event, in order and one at a time. An event counts as handled when handle returns nil or
// [ErrStop]. The position moves after that, never before: a crash repeats events and loses none. With a state file the
// position is saved once a second, and when Follow returns.
//
// Follow returns nil after ErrStop and when ctx ends. It reconnects after errors that pass. It returns a [PermanentError]
// if trying again does not help, any other error of handle as it is, and an error if the position cannot be saved at the end.
func (c *Consumer) Follow(ctx context.Context, handle func(Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	saving := make(chan struct{})
	go func() {
		defer close(saving)
		c.state.keepSaving(ctx, c.log)
	}()
	err := c.reconnect(ctx, handle)
	cancel()
	<-saving
	if failed := c.state.save(); failed != nil {
		return errors.Join(err, failed)
	}
	return err
}

// Events returns the events for a range loop. An event counts as handled when the loop asks for the next one, so the event
// at which the loop ends comes again after a restart. The last pair holds the error of [Consumer.Follow], if there is one.
func (c *Consumer) Events(ctx context.Context) iter.Seq2[Event, error] {
	errBreak := errors.New("the loop has ended")
	return func(yield func(Event, error) bool) {
		err := c.Follow(ctx, func(event Event) error {
			if !yield(event, nil) {
				return errBreak
			}
			return nil
		})
		switch {
		case err == nil, err == errBreak:
		case errors.Is(err, errBreak): // the loop has ended, and the position could not be saved
			c.log(text.OneLine(err.Error()))
		default:
			yield(Event{}, err)
		}
	}
}

// reconnect follows until ctx ends, or an error does not pass.
func (c *Consumer) reconnect(ctx context.Context, handle func(Event) error) error {
	for {
		lively, err := c.follow(ctx, handle)
		var permanent *PermanentError
		var failed handlerError
		switch {
		case errors.Is(err, ErrStop):
			return nil
		case errors.As(err, &failed):
			return failed.error
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &permanent):
			return err
		case lively:
			c.pauses.reset()
		}
		var temporary temporaryError
		errors.As(err, &temporary)
		pause := c.pauses.next(temporary.atLeast)
		c.log(fmt.Sprintf("%s; trying again in %.1f s", text.OneLine(err.Error()), pause.Seconds()))
		sleep(ctx, pause)
	}
}

func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// handlerError is an error of the handler.
type handlerError struct{ error }

// follow reads one connection to its end. lively reports whether it brought an event or lived for some time.
func (c *Consumer) follow(parent context.Context, handle func(Event) error) (lively bool, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	timer := time.AfterFunc(c.timeout, func() { cancel(errors.New("the agent did not answer in time")) })
	defer timer.Stop()
	body, err := c.connector.open(ctx, c.Position())
	if ctx.Err() != nil {
		if err == nil {
			body.Close()
		}
		return false, context.Cause(ctx) // clearer than "context canceled"
	}
	if err != nil {
		return false, err
	}
	defer body.Close()
	timer.Stop()
	opened := time.Now()
	silence := time.AfterFunc(c.heartbeat, func() { cancel(errors.New("the agent was silent for too long")) })
	defer silence.Stop()
	events := 0
	var parser parser
	buffer := make([]byte, 32<<10)
	for {
		silence.Reset(c.heartbeat) // runs while waiting for the agent, not while the handler works
		count, readErr := body.Read(buffer)
		silence.Stop()
		err = parser.feed(buffer[:count], func(b block) error {
			isEvent, err := c.take(b, handle)
			if isEvent {
				events++
			}
			return err
		})
		lively = events > 0 || time.Since(opened) > livelyAfter
		var failed handlerError
		switch {
		case errors.Is(err, ErrStop), errors.As(err, &failed):
			return lively, err
		case err != nil:
			return lively, &PermanentError{err: err}
		case readErr == io.EOF:
			return lively, errors.New("the agent ended the stream")
		case ctx.Err() != nil:
			return lively, context.Cause(ctx)
		case readErr != nil:
			return lively, readErr
		}
	}
}

// take handles a block, and then moves the position. It reports whether the block is an event.
func (c *Consumer) take(b block, handle func(Event) error) (isEvent bool, err error) {
	position := c.Position()
	if b.hasID {
		position = b.id
	}
	if b.hasID && !eventID.MatchString(b.id) {
		return false, fmt.Errorf("the stream has the id %.40q, which is not an event id", b.id)
	}
	event, isEvent, err := parseEvent(b, position)
	if err != nil {
		return false, err
	}
	if isEvent {
		if err = handle(event); err != nil && !errors.Is(err, ErrStop) {
			return false, handlerError{err}
		}
	} else if (b.event != "" || b.hasData) && !c.unknownLogged {
		c.unknownLogged = true
		c.log(fmt.Sprintf("skipping events of unknown names, such as %.40q", b.event))
	}
	c.mutex.Lock()
	c.position = position
	c.mutex.Unlock()
	c.state.set(position)
	return isEvent, err
}
