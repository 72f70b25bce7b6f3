package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net/http"
	"net/url"
	"time"

	"oplog.example/clients/internal/agent"
)

const (
	maxRedirects  = 20
	maxErrorBytes = 64 << 10
	livelyAfter   = 5 * time.Second // a connection that lived so long ends a row of failures
)

// errEnough ends the consumer after the event that was handled.
var errEnough = errors.New("enough")

// refused is an error that trying again does not change.
type refused struct{ error }

// later is an error that passes. The agent may have asked not to come back before some time.
type later struct {
	error
	atLeast time.Duration
}

// consumer follows an agent. Everything runs in one goroutine, so a slow handler only slows the stream down.
type consumer struct {
	address   agent.Address
	filters   url.Values
	client    *http.Client
	timeout   time.Duration // until the answer's head, and the body of an error, have come
	heartbeat time.Duration // longest silence of a stream
	backoff   *agent.Backoff
	position  string // the last id received
	state     *stateFile
	handle    func(Event) error // errEnough: this event was the last
	told      bool              // of an unknown event name
}

// run follows until ctx ends, handle returns errEnough or the agent refuses for good.
func (c *consumer) run(ctx context.Context) error {
	for {
		lively, err := c.follow(ctx)
		var final refused
		switch {
		case ctx.Err() != nil, errors.Is(err, errEnough):
			return c.state.save()
		case errors.As(err, &final):
			return errors.Join(err, c.state.save())
		case lively:
			c.backoff.Reset()
		}
		var wish later
		errors.As(err, &wish)
		pause := c.backoff.Next(wish.atLeast)
		log.Printf("%s; trying again in %.1f s", agent.Plain(err.Error()), pause.Seconds())
		agent.Sleep(ctx, pause)
	}
}

// follow reads one connection to its end, and tells whether it brought an event or lived for some time.
func (c *consumer) follow(parent context.Context) (lively bool, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	timer := time.AfterFunc(c.timeout, func() { cancel(errors.New("the agent did not answer in time")) })
	defer timer.Stop()
	body, err := c.open(ctx)
	if ctx.Err() != nil {
		return false, context.Cause(ctx) // says more than "context canceled"
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
		silence.Reset(c.heartbeat) // it runs while waiting for the agent, not while the handler works
		count, readErr := body.Read(buffer)
		silence.Stop()
		err = parser.feed(buffer[:count], func(b block) error {
			isEvent, err := c.take(b)
			if isEvent {
				events++
			}
			return err
		})
		lively = events > 0 || time.Since(opened) > livelyAfter
		switch {
		case errors.Is(err, errEnough):
			return lively, err
		case err != nil:
			return lively, refused{err}
		case readErr == io.EOF:
			return lively, errors.New("the agent ended the stream")
		case ctx.Err() != nil:
			return lively, context.Cause(ctx)
		case readErr != nil:
			return lively, readErr
		}
	}
}

// open returns the body of the answer if that is an event stream. It follows redirects.
func (c *consumer) open(ctx context.Context) (io.ReadCloser, error) {
	target := c.address.Ops(c.filters)
	for redirects := 0; redirects <= maxRedirects; redirects++ {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
		if err != nil {
			return nil, refused{agent.Cause(err)}
		}
		request.Header.Set("Accept", "text/event-stream")
		request.Header.Set("Accept-Encoding", "identity")
		request.Header.Set("Cache-Control", "no-cache")
		if c.position != "" {
			request.Header.Set("Last-Event-ID", c.position)
		}
		c.address.Authorize(request)
		response, err := c.client.Do(request)
		if err != nil {
			return nil, agent.Cause(err)
		}
		switch response.StatusCode {
		case 301, 302, 303, 307, 308:
			response.Body.Close()
			if target, err = response.Location(); err != nil || target.Scheme != "http" && target.Scheme != "https" {
				return nil, refused{fmt.Errorf("HTTP %s leads nowhere", response.Status)}
			}
			continue
		}
		if err := check(response); err != nil {
			response.Body.Close()
			return nil, err
		}
		return response.Body, nil
	}
	return nil, refused{fmt.Errorf("more than %d redirects", maxRedirects)}
}

func check(response *http.Response) error {
	if response.StatusCode/100 == 2 {
		kind := response.Header.Get("Content-Type")
		if media, _, _ := mime.ParseMediaType(kind); response.StatusCode != 200 || media != "text/event-stream" {
			return refused{fmt.Errorf("HTTP %s with the content type %.100q is no event stream: is it an agent?", response.Status, kind)}
		}
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	if err != nil {
		return err
	}
	said := errors.New(agent.Said(response, body))
	if agent.Passes(response.StatusCode) {
		return later{said, agent.RetryAfter(response.Header.Get("Retry-After"), time.Now())}
	}
	return refused{fmt.Errorf("the agent refuses: %w", said)}
}

// take handles a block, and then moves the position. It tells whether the block is an event.
func (c *consumer) take(b block) (isEvent bool, err error) {
	position := c.position
	if b.hasID {
		position = b.id
	}
	if b.hasID && !eventID.MatchString(b.id) {
		return false, fmt.Errorf("the stream has the id %.40q, which is no event id", b.id)
	}
	event, isEvent, err := read(b, position)
	if err != nil {
		return false, err
	}
	if isEvent {
		if err = c.handle(event); err != nil && err != errEnough {
			return false, err
		}
	} else if (b.event != "" || b.hasData) && !c.told {
		c.told = true
		log.Printf("skipping events of unknown names, such as %.40q", b.event)
	}
	c.position = position
	c.state.set(position)
	return isEvent, err
}
