package oplog_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"oplog.example/oplog"
)

// confirming is an agent whose answers have these headers Oplog-Shard, one after the other; "" is none, "409" a refusal. It keeps
// the shards of all requests.
func confirming(t *testing.T, confirmed ...string) (server *httptest.Server, asked *[]string) {
	asked = &[]string{}
	server = httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		header := confirmed[min(len(*asked), len(confirmed)-1)]
		*asked = append(*asked, request.URL.Query().Get("shard"))
		if header == "409" {
			writer.WriteHeader(http.StatusConflict)
			return
		}
		if header != "" {
			writer.Header()["OPLOG-SHARD"] = []string{header}
		}
		writer.Header().Set("Content-Type", "text/event-stream")
		writer.Write([]byte("id: 5\nevent: live\ndata:\n\n"))
	}))
	t.Cleanup(server.Close)
	return server, asked
}

// follow returns the number of events until the error, or until there are enough.
func follow(t *testing.T, server *httptest.Server, shard string, enough int) (events int, err error) {
	consumer, err := oplog.NewConsumer(server.URL, oplog.ConsumerOptions{Shard: shard, Backoff: fast, Log: silent})
	if err != nil {
		t.Fatal(err)
	}
	err = consumer.Follow(context.Background(), func(oplog.Event) error {
		if events++; events == enough {
			return oplog.ErrStop
		}
		return nil
	})
	return events, err
}

func TestAConsumerAsksForItsShardAtEachConnection(t *testing.T) {
	server, asked := confirming(t, "3/8")
	if events, err := follow(t, server, "3/8", 2); events != 2 || err != nil {
		t.Fatal(events, err)
	}
	if !slices.Equal(*asked, []string{"3/8", "3/8"}) {
		t.Fatal(*asked)
	}
}

func TestAConsumerWithoutAShardNeedsNoConfirmation(t *testing.T) {
	server, asked := confirming(t, "", "3/8")
	if events, err := follow(t, server, "", 2); events != 2 || err != nil || (*asked)[0] != "" {
		t.Fatal(events, err, *asked)
	}
}

func TestAnAnswerThatDoesNotConfirmTheShardIsAPermanentError(t *testing.T) {
	for confirmed, part := range map[string]string{
		"":     "the agent does not know shards: it is older than this client and sent everything. Upgrade the agent",
		"3/9":  `the agent sent the shard "3/9" instead of 3/8`,
		"03/8": `the agent sent the shard "03/8" instead of 3/8`,
	} {
		server, asked := confirming(t, "3/8", confirmed)
		events, err := follow(t, server, "3/8", 2)
		var permanent *oplog.PermanentError
		if events != 1 || !errors.As(err, &permanent) || err.Error() != part || len(*asked) != 2 {
			t.Fatal(events, err, *asked)
		}
	}
}

func TestTooManyNumbersOfShardsPass(t *testing.T) {
	server, asked := confirming(t, "409", "409", "3/8")
	if events, err := follow(t, server, "3/8", 1); events != 1 || err != nil || len(*asked) != 3 {
		t.Fatal(events, err, *asked)
	}
	server, _ = confirming(t, "409")
	var permanent *oplog.PermanentError
	if _, err := follow(t, server, "", 1); !errors.As(err, &permanent) || permanent.Status != 409 {
		t.Fatal(err)
	}
}

func TestShardsAreCheckedBeforeTheyAreSent(t *testing.T) {
	for _, good := range []string{"", "0/1", "0/256", "255/256"} {
		if _, err := oplog.NewConsumer("http://localhost:1", oplog.ConsumerOptions{Shard: good}); err != nil {
			t.Fatal(good, err)
		}
	}
	for _, bad := range []string{"3", "8/8", "9/8", "0/0", "0/257", "03/8", "3/08", "+3/8", "-1/8", " 3/8", "3/8\n", "3/8/9", "3.0/8", "\u0663/8"} {
		_, err := oplog.NewConsumer("http://localhost:1", oplog.ConsumerOptions{Shard: bad})
		if err == nil || !strings.HasPrefix(err.Error(), "Shard: give I/N") {
			t.Fatal(bad, err)
		}
	}
}
