package oplog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"oplog.example/oplog"
)

const deadline = time.Minute

// request is a request of a producer that waits for its answer.
type request struct {
	path   string
	lines  int
	answer chan<- int // HTTP status
}

// answering is an agent that answers as the test says.
func answering(t *testing.T) (url string, requests <-chan request) {
	asked := make(chan request)
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, from *http.Request) {
		body, _ := io.ReadAll(from.Body)
		lines := bytes.Count(body, []byte("\n")) + 1
		answer := make(chan int)
		select {
		case asked <- request{from.URL.Path, lines, answer}:
		case <-ended:
			return
		}
		select {
		case status := <-answer:
			writer.WriteHeader(status)
			fmt.Fprintf(writer, `{"ingested": %d, "detail": "as the test says"}`, lines)
		case <-ended:
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(ended) })
	return server.URL, asked
}

// next returns the next value of a channel.
func next[T any](t *testing.T, values <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-values:
	case <-time.After(deadline):
		t.Fatal("nothing came")
	}
	return value
}

func send(t *testing.T, producer *oplog.Producer, count int) {
	t.Helper()
	for range count {
		if err := producer.Send(context.Background(), oplog.Operation{Event: oplog.Insert, Type: "video", ID: "x"}); err != nil {
			t.Fatal(err)
		}
	}
}

func newProducer(t *testing.T, url string, options oplog.ProducerOptions) *oplog.Producer {
	t.Helper()
	if options.Log == nil {
		options.Log = silent
	}
	producer, err := oplog.NewProducer(url, options)
	if err != nil {
		t.Fatal(err)
	}
	return producer
}

func TestOperationsLeaveWithoutAFlush(t *testing.T) {
	url, requests := answering(t)
	producer := newProducer(t, url, oplog.ProducerOptions{})
	send(t, producer, 1)
	first := next(t, requests)
	send(t, producer, 2) // does not wait for the answer
	if waiting := producer.Counters().Waiting; waiting != 3 {
		t.Fatal(waiting)
	}
	first.answer <- 200
	second := next(t, requests)
	second.answer <- 200
	if err := producer.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if first.lines != 1 || second.lines != 2 {
		t.Fatal(first.lines, second.lines)
	}
	if counters := producer.Counters(); counters != (oplog.Counters{Sent: 3, Delivered: 3}) {
		t.Fatal(counters)
	}
}

func TestOperationsThatWaitAreTriedAgainWhateverTheAgentAnswers(t *testing.T) {
	url, requests := answering(t)
	logged := make(chan string, 2)
	producer := newProducer(t, url, oplog.ProducerOptions{
		Linger: time.Millisecond, Backoff: oplog.Backoff{First: time.Millisecond, Last: time.Millisecond},
		Log: func(line string) { logged <- line },
	})
	send(t, producer, 1)
	for _, status := range []int{503, 401} {
		next(t, requests).answer <- status
		if line := next(t, logged); !strings.Contains(line, fmt.Sprint(status)) || !strings.Contains(line, "trying again") {
			t.Fatal(line)
		}
	}
	next(t, requests).answer <- 200
	if err := producer.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if counters := producer.Counters(); counters != (oplog.Counters{Sent: 1, Delivered: 1}) {
		t.Fatal(counters)
	}
}

func TestCloseEndsWithItsContextWhileARequestIsOnItsWay(t *testing.T) {
	url, requests := answering(t)
	producer := newProducer(t, url, oplog.ProducerOptions{Linger: time.Millisecond})
	send(t, producer, 2)
	next(t, requests)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := producer.Close(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "2 operations are not delivered") {
		t.Fatal(err)
	}
}

func TestANegativeLingerLeavesOperationsToFlush(t *testing.T) {
	url, requests := answering(t)
	quiet := newProducer(t, url+"/quiet", oplog.ProducerOptions{Linger: -1})
	send(t, quiet, 2)
	other := newProducer(t, url+"/other", oplog.ProducerOptions{Linger: 10 * time.Millisecond})
	send(t, other, 1)
	first := next(t, requests)
	first.answer <- 200
	flushed := make(chan error)
	go func() { flushed <- quiet.Flush(context.Background()) }()
	second := next(t, requests)
	second.answer <- 200
	if err := next(t, flushed); err != nil || first.path != "/other/ops" || second.path != "/quiet/ops" || second.lines != 2 {
		t.Fatal(err, first.path, second.path, second.lines)
	}
}

func TestAFlushWaitsForItsOperationsAndNotForLaterOnes(t *testing.T) {
	url, requests := answering(t)
	producer := newProducer(t, url, oplog.ProducerOptions{Linger: -1})
	send(t, producer, 1)
	flushed := make(chan error)
	go func() { flushed <- producer.Flush(context.Background()) }()
	first := next(t, requests)
	send(t, producer, 1)
	first.answer <- 200
	if err := next(t, flushed); err != nil {
		t.Fatal(err)
	}
	if waiting := producer.Counters().Waiting; waiting != 1 {
		t.Fatal(waiting)
	}
}
