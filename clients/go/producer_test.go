package oplog_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"oplog.example/oplog"
)

func silent(string) {}

// busy is an agent that answers 503 and asks for a long pause.
func busy(t *testing.T) (server *httptest.Server, asked <-chan struct{}) {
	requests := make(chan struct{}, 100)
	server = httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Retry-After", "3000")
		writer.WriteHeader(http.StatusServiceUnavailable)
		requests <- struct{}{}
	}))
	t.Cleanup(server.Close)
	return server, requests
}

func TestADeadlineEndsAFlushThatWaits(t *testing.T) {
	server, asked := busy(t)
	producer, err := oplog.NewProducer(server.URL, oplog.ProducerOptions{Log: silent})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := producer.Send(ctx, oplog.Operation{Event: oplog.Insert, Type: "video", ID: "x"}); err != nil {
		t.Fatal(err)
	}
	flushed := make(chan error)
	go func() { flushed <- producer.Flush(ctx) }()
	<-asked
	producer.SetDeadline(time.Now().Add(time.Minute))
	if err := <-flushed; err == nil || !strings.Contains(err.Error(), "1 operations are not delivered") {
		t.Fatal(err)
	}
	if waiting := producer.Counters().Waiting; waiting != 1 {
		t.Fatal(waiting)
	}
}

func TestACancelledContextEndsACallThatWaitsForItsTurn(t *testing.T) {
	server, asked := busy(t)
	producer, err := oplog.NewProducer(server.URL, oplog.ProducerOptions{Log: silent})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	video := oplog.Operation{Event: oplog.Insert, Type: "video", ID: "x"}
	if err := producer.Send(ctx, video); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- producer.Flush(ctx) }()
	<-asked
	go func() { ended <- producer.Flush(ctx) }()
	cancel()
	for range 2 {
		err := <-ended
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "1 operations are not delivered") {
			t.Fatal(err)
		}
	}
	if err := producer.Send(ctx, video); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestAClosedProducerTakesNothing(t *testing.T) {
	producer, err := oplog.NewProducer("udp://127.0.0.1:9", oplog.ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for range 2 {
		if err := producer.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	err = producer.Send(ctx, oplog.Operation{Event: oplog.Insert, Type: "video", ID: "x"})
	if !errors.Is(err, oplog.ErrClosed) {
		t.Fatal(err)
	}
}

func TestAnOperationThatAnAgentRefusesIsRejected(t *testing.T) {
	producer, err := oplog.NewProducer("udp://127.0.0.1:9", oplog.ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	defer producer.Close(ctx)
	for name, operation := range map[string]oplog.Operation{
		"no event":        {Type: "video", ID: "x"},
		"an empty id":     {Event: oplog.Insert, Type: "video"},
		"an empty parent": {Event: oplog.Insert, Type: "video", ID: "x", Parents: []string{""}},
		"no UTF-8":        {Event: oplog.Insert, Type: "video", ID: "x\xff"},
		"a NUL":           {Event: oplog.Insert, Type: "video", ID: "x\x00"},
		"year 10000":      {Event: oplog.Insert, Type: "video", ID: "x", Timestamp: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if rejected := (oplog.RejectedError{}); !errors.As(producer.Send(ctx, operation), &rejected) {
			t.Error(name)
		}
	}
}

func TestBadOptionsAndAddressesAreRefused(t *testing.T) {
	for name, options := range map[string]oplog.ConsumerOptions{
		"a start that is no event id": {Start: "yesterday"},
		"an empty type":               {Types: []string{""}},
		"a negative timeout":          {Timeout: -1},
		"a backoff that falls":        {Backoff: oplog.Backoff{First: 2, Last: 1}},
		"a missing folder":            {StateFile: "missing/folder/state"},
	} {
		if _, err := oplog.NewConsumer("http://localhost", options); err == nil {
			t.Error(name)
		}
	}
	for _, url := range []string{"ftp://localhost", "localhost:8042", "http://user:secret@host:bad", "http://h:99999"} {
		_, err := oplog.NewProducer(url, oplog.ProducerOptions{})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Error(url, err)
		}
	}
}
