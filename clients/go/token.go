package oplog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"oplog.example/oplog/internal/text"
)

var tokenText = regexp.MustCompile(`^[!-~]+$`)

// errToken is the error for a token that a header cannot hold. It does not show the token.
var errToken = errors.New("the token must be printable ASCII text without a space")

// tokens gives the token of each request. Its zero value gives none.
type tokens struct {
	function func(context.Context) (string, error)

	mutex sync.Mutex
	last  string // the only token, or the last one of the function
}

// newTokens returns an error for a bad token, and if token and function are given.
func newTokens(token string, function func(context.Context) (string, error)) (*tokens, error) {
	if token != "" && function != nil {
		return nil, errors.New("Token and TokenFunc exclude each other")
	}
	checked, err := checkToken(token)
	if token != "" && err != nil {
		return nil, err
	}
	return &tokens{function: function, last: checked}, nil
}

func checkToken(token string) (string, error) {
	token = strings.TrimSpace(token)
	if !tokenText.MatchString(token) {
		return "", errToken
	}
	return token, nil
}

func (t *tokens) isGiven() bool { return t.function != nil || t.last != "" }

// current returns the last token, unless there is none yet or it is the refused one.
func (t *tokens) current(ctx context.Context, refused string) (string, error) {
	t.mutex.Lock()
	last := t.last
	t.mutex.Unlock()
	if last == refused {
		return t.fresh(ctx)
	}
	return last, nil
}

// fresh calls the function. Without a function it returns the only token.
func (t *tokens) fresh(ctx context.Context) (string, error) {
	if t.function == nil {
		return t.last, nil
	}
	token, err := t.function(ctx)
	if err == nil {
		token, err = checkToken(token)
	}
	if err != nil {
		return "", fmt.Errorf("no token: %w", err)
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.last = token
	return token, nil
}

// refusal returns an error answer as one line. It tells whether a token was refused.
func (t *tokens) refusal(response *http.Response, body []byte) string {
	said := describe(response, body)
	if response.StatusCode == http.StatusUnauthorized && t.isGiven() {
		return text.OneLine("the token was refused: " + said)
	}
	return said
}
