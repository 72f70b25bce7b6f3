package oplog

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"oplog.example/oplog/internal/text"
)

// PermanentError says that trying again does not help: the agent refuses, the address is not an agent's, or the stream
// cannot be read.
type PermanentError struct {
	Status int // HTTP status, 0 if the error has none
	err    error
}

func (e *PermanentError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *PermanentError) Unwrap() error { return e.err }

// newHTTPClient returns a client that does not follow redirects, ask for compression or reuse connections.
func newHTTPClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true
	transport.DisableKeepAlives = true
	transport.MaxResponseHeaderBytes = 64 << 10
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// isTemporary reports whether a request answered with this status is tried again: 408, 425, 429 and 5xx.
func isTemporary(status int) bool {
	return status >= 500 || status == 408 || status == 425 || status == 429
}

// describe returns an error answer as one line: the status, and the problem document's detail or the start of the body.
func describe(response *http.Response, body []byte) string {
	var problem map[string]json.RawMessage // a struct would also take "DETAIL"
	var detail string
	if json.Unmarshal(body, &problem) != nil || json.Unmarshal(problem["detail"], &detail) != nil || detail == "" {
		detail = string(body[:min(len(body), 200)])
	}
	return strings.TrimRight(text.OneLine("HTTP "+response.Status+": "+detail), ": ")
}

// redirectTarget returns the target of a redirect without credentials and parameters.
func redirectTarget(response *http.Response) string {
	parsed, err := response.Location()
	if err != nil {
		return "nowhere"
	}
	parsed.User, parsed.RawQuery, parsed.Fragment = nil, "", ""
	return text.OneLine(parsed.String())
}

// cause returns the reason of a failed request, without its URL.
func cause(err error) error {
	var slow interface{ Timeout() bool }
	if errors.As(err, &slow) && slow.Timeout() {
		return errors.New("the agent did not answer in time")
	}
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
