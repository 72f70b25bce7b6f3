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

// strict is an agent that takes one token only. It keeps the credentials of all requests.
func strict(t *testing.T, token string) (server *httptest.Server, sent *[]string) {
	sent = &[]string{}
	server = httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		*sent = append(*sent, request.Header.Get("Authorization"))
		if request.Header.Get("Authorization") != "Bearer "+token {
			writer.WriteHeader(http.StatusUnauthorized)
		} else if request.Method == http.MethodPost {
			writer.Write([]byte(`{"ingested": 1}`))
		} else {
			writer.Header().Set("Content-Type", "text/event-stream")
			writer.Write([]byte("id: 5\nevent: live\ndata:\n\n"))
		}
	}))
	t.Cleanup(server.Close)
	return server, sent
}

// oneByOne returns a function that gives these tokens; "" is a failure.
func oneByOne(tokens ...string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		token := tokens[0]
		tokens = tokens[1:]
		if token == "" {
			return "", errAway
		}
		return token, nil
	}
}

var (
	errAway = errors.New("the issuer is away")
	video   = oplog.Operation{Event: oplog.Insert, Type: "video", ID: "x"}
	fast    = oplog.Backoff{First: 1, Last: 1}
)

func TestAConsumerAsksForATokenBeforeEachConnection(t *testing.T) {
	server, sent := strict(t, "good")
	var told []string
	consumer, err := oplog.NewConsumer(server.URL, oplog.ConsumerOptions{
		TokenFunc: oneByOne("", "old", "two words", " good\n"), Backoff: fast, Log: func(line string) { told = append(told, line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := consumer.Follow(context.Background(), func(oplog.Event) error { return oplog.ErrStop }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(*sent, []string{"Bearer old", "Bearer good"}) {
		t.Fatal(*sent)
	}
	for i, part := range []string{
		"no token: the issuer is away; trying", "the token was refused: HTTP 401 Unauthorized; trying", "no token: the token must be",
	} {
		if !strings.HasPrefix(told[i], part) || strings.Contains(told[i], "two words") {
			t.Fatal(told)
		}
	}
}

func TestAnErrorOfTheFunctionNeverEndsAConsumer(t *testing.T) {
	server, _ := strict(t, "good")
	calls := 0
	consumer, err := oplog.NewConsumer(server.URL, oplog.ConsumerOptions{Backoff: fast, Log: silent,
		TokenFunc: func(context.Context) (string, error) {
			if calls++; calls == 1 {
				return "", oplog.ErrStop
			}
			return "good", nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	events := 0
	consumer.Follow(context.Background(), func(oplog.Event) error { events++; return oplog.ErrStop })
	if events != 1 {
		t.Fatal("the consumer ended without an event")
	}
}

func TestAConstantTokenIsRefusedForGood(t *testing.T) {
	server, sent := strict(t, "good")
	consumer, err := oplog.NewConsumer(server.URL, oplog.ConsumerOptions{Token: "old"})
	if err != nil {
		t.Fatal(err)
	}
	var permanent *oplog.PermanentError
	err = consumer.Follow(context.Background(), nil)
	if !errors.As(err, &permanent) || permanent.Status != 401 || !strings.Contains(err.Error(), "the token was refused") {
		t.Fatal(err)
	}
	if !slices.Equal(*sent, []string{"Bearer old"}) {
		t.Fatal(*sent)
	}
}

func TestAProducerAsksForATokenAtFirstAndAfterARefusal(t *testing.T) {
	server, sent := strict(t, "good")
	producer, err := oplog.NewProducer(server.URL, oplog.ProducerOptions{
		TokenFunc: oneByOne("", "old", "good", "unused"), Backoff: fast, Log: silent, Linger: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for range 2 {
		if err := errors.Join(producer.Send(ctx, video), producer.Flush(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(*sent, []string{"Bearer old", "Bearer good", "Bearer good"}) {
		t.Fatal(*sent)
	}
}

func TestASecondRefusalIsPermanent(t *testing.T) {
	server, sent := strict(t, "good")
	producer, err := oplog.NewProducer(server.URL, oplog.ProducerOptions{TokenFunc: oneByOne("old", "older"), Linger: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	err = errors.Join(producer.Send(ctx, video), producer.Flush(ctx))
	var permanent *oplog.PermanentError
	if !errors.As(err, &permanent) || !strings.Contains(err.Error(), "the token was refused: HTTP 401") {
		t.Fatal(err)
	}
	if !slices.Equal(*sent, []string{"Bearer old", "Bearer older"}) {
		t.Fatal(*sent)
	}
}

func TestATokenExcludesAPasswordAndAFunction(t *testing.T) {
	function := oneByOne("a")
	for name, options := range map[string]oplog.ConsumerOptions{
		"http://localhost:1":         {Token: "a", Password: "b"},
		"http://127.0.0.1:1":         {TokenFunc: function, Password: "b"},
		"http://user@localhost:1":    {Token: "a"},
		"http://user:b@localhost:1":  {TokenFunc: function},
		"http://localhost:1/another": {Token: "a", TokenFunc: function},
		"http://localhost:1/words":   {Token: "two words"},
	} {
		_, err := oplog.NewConsumer(name, options)
		if err == nil || !strings.Contains(err.Error(), "exclude each other") && !strings.Contains(err.Error(), "must be printable") {
			t.Fatal(name, err)
		}
		_, err = oplog.NewProducer(name, oplog.ProducerOptions{
			Token: options.Token, TokenFunc: options.TokenFunc, Password: options.Password,
		})
		if err == nil || strings.Contains(err.Error(), "words") {
			t.Fatal(name, err)
		}
	}
}
