package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	"oplog.example/clients/internal/agent"
)

const (
	batchLines     = 1000
	batchBytes     = 1 << 20
	maxAnswerBytes = 256 << 10
)

// httpSender sends operations in batches, the same batch again until the agent has it.
type httpSender struct {
	signalled context.Context // ends with a signal
	address   agent.Address
	client    *http.Client
	backoff   *agent.Backoff
	waiting   []operation
	bytes     int
	size      int // operations in a request: fewer after "413 too large"
}

func newHTTPSender(signalled context.Context, address agent.Address, timeout time.Duration, backoff *agent.Backoff) *httpSender {
	client := agent.Client()
	client.Timeout = timeout // until the answer has come whole
	return &httpSender{signalled: signalled, address: address, client: client, backoff: backoff, size: batchLines}
}

func (h *httpSender) send(ctx context.Context, op operation) error {
	h.waiting = append(h.waiting, op)
	h.bytes += len(op.raw) + 1
	if len(h.waiting) < batchLines && h.bytes < batchBytes {
		return nil
	}
	return h.flush(ctx)
}

// flush returns when all operations are delivered or rejected. An error says that the agent refuses, or that ctx has ended.
func (h *httpSender) flush(ctx context.Context) error {
	for len(h.waiting) > 0 {
		batch := h.waiting[:min(h.size, len(h.waiting))]
		response, body, err := h.post(ctx, batch)
		again := err != nil || agent.Passes(response.StatusCode)
		if !again {
			if err = h.judge(batch, response, body); err != nil {
				return h.undelivered(err)
			}
			h.backoff.Reset()
			continue
		}
		wish := time.Duration(0)
		if err == nil {
			err = errors.New(agent.Said(response, body))
			wish = agent.RetryAfter(response.Header.Get("Retry-After"), time.Now())
		}
		pause := h.backoff.Next(wish)
		log.Printf("%s; trying again in %.1f s", agent.Plain(err.Error()), pause.Seconds())
		if !h.sleep(ctx, pause) {
			return h.undelivered(fmt.Errorf("ended by a signal: %w", err))
		}
	}
	h.bytes = 0
	return nil
}

// sleep returns false when ctx ends. A signal ends a pause longer than closeTime at once.
func (h *httpSender) sleep(ctx context.Context, pause time.Duration) bool {
	if pause > closeTime {
		return agent.Sleep(h.signalled, pause)
	}
	return agent.Sleep(ctx, pause)
}

func (h *httpSender) undelivered(err error) error {
	return fmt.Errorf("%w; %d operations are not delivered", err, len(h.waiting))
}

func (h *httpSender) post(ctx context.Context, batch []operation) (*http.Response, []byte, error) {
	lines := make([][]byte, len(batch))
	for i, op := range batch {
		lines[i] = op.raw
	}
	body := bytes.NewReader(bytes.Join(lines, []byte("\n")))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.address.Ops(nil).String(), body)
	if err != nil {
		return nil, nil, agent.Cause(err)
	}
	request.Header.Set("Content-Type", "application/x-ndjson")
	request.Header.Set("Accept-Encoding", "identity")
	h.address.Authorize(request)
	response, err := h.client.Do(request)
	if err != nil {
		return nil, nil, agent.Cause(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return nil, nil, agent.Cause(err)
	}
	return response, answer, nil
}

// judge removes the operations that an answer settles from the queue. An error means that trying again is no use.
func (h *httpSender) judge(batch []operation, response *http.Response, body []byte) error {
	switch status := response.StatusCode; {
	case status/100 == 2:
		if status != 200 || ingested(body) != len(batch) {
			return fmt.Errorf("the address is no agent: HTTP %s does not say that the %d operations were stored", response.Status, len(batch))
		}
		h.waiting = h.waiting[len(batch):]
		h.size = min(2*h.size, batchLines)
	case status/100 == 3:
		return fmt.Errorf("HTTP %s redirects to %s: give that as -url if it is the agent", response.Status, agent.Pointed(response))
	case status == 413 && len(batch) == 1:
		reject(batch[0].line, errors.New(agent.Said(response, body)))
		h.waiting = h.waiting[1:]
	case status == 413:
		h.size = len(batch) / 2
	case status == 400:
		bad := badLines(body, len(batch))
		if len(bad) == 0 {
			return fmt.Errorf("the agent refuses: %s", agent.Said(response, body))
		}
		h.reject(len(batch), bad)
	default:
		return fmt.Errorf("the agent refuses: %s", agent.Said(response, body))
	}
	return nil
}

// reject takes the operations that the agent named out of the queue.
func (h *httpSender) reject(batch int, bad map[int]string) {
	good := make([]operation, 0, len(h.waiting))
	told := false
	for number, op := range h.waiting {
		reason, isBad := bad[number+1]
		switch {
		case number >= batch || !isBad:
			good = append(good, op)
		case !told:
			told = true
			reject(op.line, fmt.Errorf("%s (the agent refuses %d operations of this request)", reason, len(bad)))
		}
	}
	h.waiting = good
}

// ingested is how many operations the agent says are stored, or -1.
func ingested(body []byte) int {
	var answer map[string]json.RawMessage
	var count *int
	if json.Unmarshal(body, &answer) != nil || json.Unmarshal(answer["ingested"], &count) != nil || count == nil {
		return -1
	}
	return *count
}

// badLines are the lines, from 1, that a problem document names, with the reasons. Empty if it names none or a wrong one.
func badLines(body []byte, lines int) map[int]string {
	var problem map[string]json.RawMessage
	var named []map[string]json.RawMessage
	if json.Unmarshal(body, &problem) != nil || json.Unmarshal(problem["errors"], &named) != nil {
		return nil
	}
	bad := map[int]string{}
	for _, entry := range named {
		var line int
		if json.Unmarshal(entry["line"], &line) != nil || line < 1 || line > lines {
			return nil
		}
		var field, reason string
		json.Unmarshal(entry["field"], &field) // missing: told without
		json.Unmarshal(entry["reason"], &reason)
		bad[line] = field + ": " + reason
	}
	return bad
}
