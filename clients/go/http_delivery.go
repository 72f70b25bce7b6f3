package oplog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	pauses   *pauses
	log      func(string)
	settled  settled
	deadline deadline
	queue    []queued
	bytes    int
	size     int // operations in a request: fewer after "413 too large"
}

func newHTTPDelivery(base address, timeout time.Duration, pauses *pauses, log func(string), settled settled) *httpDelivery {
	client := newHTTPClient()
	client.Timeout = timeout
	return &httpDelivery{
		base: base, client: client, pauses: pauses, log: log, settled: settled, size: batchOperations,
		deadline: deadline{changed: make(chan struct{})},
	}
}

func (h *httpDelivery) waiting() int { return len(h.queue) }

func (h *httpDelivery) setDeadline(at time.Time) { h.deadline.set(at) }

func (h *httpDelivery) close() error { return nil }

func (h *httpDelivery) send(ctx context.Context, op queued) error {
	h.queue = append(h.queue, op)
	h.bytes += len(op.raw) + 1
	if len(h.queue) < batchOperations && h.bytes < batchBytes {
		return nil
	}
	return h.flush(ctx)
}

// flush returns when all operations are delivered or rejected, the agent refuses for good, or ctx or the deadline ends it.
func (h *httpDelivery) flush(ctx context.Context) error {
	ctx, cancel := h.deadline.apply(ctx)
	defer cancel()
	for len(h.queue) > 0 {
		batch := h.queue[:min(h.size, len(h.queue))]
		response, body, err := h.post(ctx, batch)
		if err == nil && !isTemporary(response.StatusCode) {
			if err = h.settle(batch, response, body); err != nil {
				return h.undelivered(err)
			}
			h.pauses.reset()
			continue
		}
		atLeast := time.Duration(0)
		if err == nil {
			err = errors.New(describe(response, body))
			atLeast = retryAfter(response, time.Now())
		}
		pause := h.pauses.next(atLeast)
		h.log(fmt.Sprintf("%s; trying again in %.1f s", text.OneLine(err.Error()), pause.Seconds()))
		if reason := h.deadline.sleep(ctx, pause); reason != nil {
			return h.undelivered(fmt.Errorf("%w: %w", reason, err))
		}
	}
	h.bytes = 0
	return nil
}

func (h *httpDelivery) undelivered(err error) error {
	return fmt.Errorf("%w; %d operations are not delivered", err, len(h.queue))
}

func (h *httpDelivery) post(ctx context.Context, batch []queued) (*http.Response, []byte, error) {
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
	h.base.authorize(request)
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
		h.settled.delivered(len(batch))
		h.queue = h.queue[len(batch):]
		h.size = min(2*h.size, batchOperations)
	case status/100 == 3:
		return permanent("HTTP %s redirects to %s: use this address if it is the agent's", response.Status, redirectTarget(response))
	case status == 413 && len(batch) == 1:
		h.settled.rejected(RejectedError{batch[0].label, describe(response, body), 1})
		h.queue = h.queue[1:]
	case status == 413:
		h.size = len(batch) / 2
	case status == 400:
		refused := refusedLines(body, len(batch))
		if len(refused) == 0 {
			return permanent("the agent refuses: %s", describe(response, body))
		}
		h.reject(len(batch), refused)
	default:
		return permanent("the agent refuses: %s", describe(response, body))
	}
	return nil
}

// reject removes the refused operations of a batch from the queue.
func (h *httpDelivery) reject(batch int, refused map[int]string) {
	kept := make([]queued, 0, len(h.queue))
	var first *RejectedError
	for index, op := range h.queue {
		reason, isRefused := refused[index+1]
		switch {
		case index >= batch || !isRefused:
			kept = append(kept, op)
		case first == nil:
			first = &RejectedError{op.label, reason, len(refused)}
		}
	}
	h.queue = kept
	h.settled.rejected(*first)
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
