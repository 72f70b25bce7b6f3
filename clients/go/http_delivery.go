package oplog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"oplog.example/oplog/internal/text"
)

const (
	batchOperations = 1000
	batchBytes      = 1 << 20
	maxAnswerBytes  = 256 << 10
)

// httpDelivery sends operations in batches. It repeats a batch until the agent has it.
type httpDelivery struct {
	base     address
	client   *http.Client
	log      func(string)
	settled  settled
	deadline deadline
	queue    queue
	linger   *linger
	turn     chan struct{} // holds one element while nothing is sent

	// Used in turn.
	pauses *pauses
	size   int // operations in a request: fewer after "413 too large"
}

func newHTTPDelivery(
	base address, timeout, wait time.Duration, pauses *pauses, log func(string), settled settled,
) *httpDelivery {
	client := newHTTPClient()
	client.Timeout = timeout
	h := &httpDelivery{
		base: base, client: client, log: log, settled: settled, deadline: deadline{changed: make(chan struct{})},
		turn: make(chan struct{}, 1), pauses: pauses, size: batchOperations,
	}
	h.linger = newLinger(wait, h.sendWaiting, h.waiting)
	h.turn <- struct{}{}
	return h
}

func (h *httpDelivery) waiting() int { return h.queue.length() }

func (h *httpDelivery) setDeadline(at time.Time) { h.deadline.set(at) }

func (h *httpDelivery) close() error {
	h.linger.stop()
	return nil
}

func (h *httpDelivery) take(op queued) (isFull bool, err error) {
	isFull = h.queue.add(op)
	h.linger.begin()
	return isFull, nil
}

// inTurn runs a function when nothing else is sent. It returns an error if ctx ends before.
func (h *httpDelivery) inTurn(ctx context.Context, run func() error) error {
	select {
	case <-h.turn:
	case <-ctx.Done():
		return h.undelivered(ctx.Err())
	}
	defer func() { h.turn <- struct{}{} }()
	return run()
}

// flush returns when the operations taken before are delivered or rejected, the agent refuses for good, or ctx or the
// deadline ends it.
func (h *httpDelivery) flush(ctx context.Context) error {
	until := h.queue.end()
	return h.inTurn(ctx, func() error {
		ctx, cancel := h.deadline.apply(ctx)
		defer cancel()
		for !h.queue.isSettled(until) {
			err := h.attempt(ctx)
			var permanent *PermanentError
			if errors.As(err, &permanent) {
				return h.undelivered(err)
			} else if err == nil {
				continue
			}
			if reason := h.deadline.sleep(ctx, h.pause(err)); reason != nil {
				return h.undelivered(fmt.Errorf("%w: %w", reason, err))
			}
		}
		return nil
	})
}

// sendWaiting sends the operations that wait. It returns the pause before the next attempt after a failure, 0 if nothing is
// left. Between attempts others have their turn. After the deadline it waits for another one.
func (h *httpDelivery) sendWaiting(ctx context.Context) (pause time.Duration) {
	h.inTurn(ctx, func() error {
		ctx, cancel := h.deadline.apply(ctx)
		defer cancel()
		for until := h.queue.end(); pause == 0 && !h.queue.isSettled(until); {
			if h.deadline.isOver() {
				pause = h.pauses.Last
			} else if err := h.attempt(ctx); ctx.Err() != nil {
				return nil
			} else if err != nil {
				pause = h.pause(err)
			}
		}
		return nil
	})
	return pause
}

// pause logs a failed attempt and returns the pause before the next one.
func (h *httpDelivery) pause(err error) time.Duration {
	var temporary temporaryError
	errors.As(err, &temporary)
	pause := h.pauses.next(temporary.atLeast)
	h.log(fmt.Sprintf("%s; trying again in %.1f s", text.OneLine(err.Error()), pause.Seconds()))
	return pause
}

// attempt sends a batch once. It returns a PermanentError if trying again does not help.
func (h *httpDelivery) attempt(ctx context.Context) error {
	batch := h.queue.first(h.size)
	response, body, err := h.authorized(ctx, batch)
	if err != nil {
		return err
	}
	if isTemporary(response.StatusCode) {
		return temporaryError{errors.New(describe(response, body)), retryAfter(response, time.Now())}
	}
	if err := h.settle(batch, response, body); err != nil {
		return err
	}
	h.pauses.reset()
	return nil
}

func (h *httpDelivery) undelivered(err error) error {
	return fmt.Errorf("%w; %d operations are not delivered", err, h.queue.length())
}

// authorized sends a batch, and again with a fresh token if the agent refuses the token of a function.
func (h *httpDelivery) authorized(ctx context.Context, batch []queued) (*http.Response, []byte, error) {
	token, err := h.token(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	response, body, err := h.post(ctx, batch, token)
	if err != nil || response.StatusCode != http.StatusUnauthorized || h.base.tokens.function == nil {
		return response, body, err
	}
	if token, err = h.token(ctx, token); err != nil {
		return nil, nil, err
	}
	return h.post(ctx, batch, token)
}

// token returns a token other than the refused one, if there is a function for it.
func (h *httpDelivery) token(ctx context.Context, refused string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, h.client.Timeout)
	defer cancel()
	return h.base.tokens.current(ctx, refused)
}

func (h *httpDelivery) post(ctx context.Context, batch []queued, token string) (*http.Response, []byte, error) {
	lines := make([][]byte, len(batch))
	for i, op := range batch {
		lines[i] = op.raw
	}
	body := bytes.NewReader(bytes.Join(lines, []byte("\n")))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base.ops(nil).String(), body)
	if err != nil {
		return nil, nil, cause(err)
	}
	request.Header.Set("Content-Type", "application/x-ndjson")
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("User-Agent", "oplog-go/"+Version)
	h.base.authorize(request, token)
	response, err := h.client.Do(request)
	if err != nil {
		return nil, nil, cause(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return nil, nil, cause(err)
	}
	return response, answer, nil
}

// settle removes the operations that an answer settles from the queue. It returns an error if trying again does not help.
func (h *httpDelivery) settle(batch []queued, response *http.Response, body []byte) error {
	status := response.StatusCode
	permanent := func(format string, values ...any) error {
		return &PermanentError{status, fmt.Errorf(format, values...)}
	}
	switch {
	case status/100 == 2:
		if status != 200 || ingested(body) != len(batch) {
			return permanent("the address is no agent: HTTP %s does not confirm that %d operations were stored", response.Status, len(batch))
		}
		h.queue.remove(batch, none)
		h.settled.delivered(len(batch))
		h.size = min(2*h.size, batchOperations)
	case status/100 == 3:
		return permanent("HTTP %s redirects to %s: use this address if it is the agent's", response.Status, redirectTarget(response))
	case status == 413 && len(batch) == 1:
		h.queue.remove(batch, none)
		h.settled.rejected(RejectedError{batch[0].label, describe(response, body), 1})
	case status == 413:
		h.size = len(batch) / 2
	case status == 400:
		refused := refusedLines(body, len(batch))
		if len(refused) == 0 {
			return permanent("the agent refuses: %s", describe(response, body))
		}
		h.reject(batch, refused)
	default:
		return permanent("the agent refuses: %s", h.base.tokens.refusal(response, body))
	}
	return nil
}

// none keeps no operation of a batch.
func none(int) bool { return false }

// reject removes the refused operations of a batch from the queue. Their lines are counted from 1.
func (h *httpDelivery) reject(batch []queued, refused map[int]string) {
	isAccepted := func(place int) bool {
		_, isRefused := refused[place+1]
		return !isRefused
	}
	h.queue.remove(batch, isAccepted)
	first := slices.Min(slices.Collect(maps.Keys(refused)))
	h.settled.rejected(RejectedError{batch[first-1].label, refused[first], len(refused)})
}

// ingested returns the number of operations that the agent confirms, or -1.
func ingested(body []byte) int {
	var answer map[string]json.RawMessage
	var count *int
	if json.Unmarshal(body, &answer) != nil || json.Unmarshal(answer["ingested"], &count) != nil || count == nil {
		return -1
	}
	return *count
}

// refusedLines returns the lines that a problem document names, counted from 1, with the reasons. It is empty if the
// document names none or a line that does not exist.
func refusedLines(body []byte, lines int) map[int]string {
	var problem map[string]json.RawMessage
	var named []map[string]json.RawMessage
	if json.Unmarshal(body, &problem) != nil || json.Unmarshal(problem["errors"], &named) != nil {
		return nil
	}
	refused := map[int]string{}
	for _, entry := range named {
		var line int
		if json.Unmarshal(entry["line"], &line) != nil || line < 1 || line > lines {
			return nil
		}
		var field, reason string
		json.Unmarshal(entry["field"], &field) // optional
		json.Unmarshal(entry["reason"], &reason)
		refused[line] = field + ": " + reason
	}
	return refused
}
