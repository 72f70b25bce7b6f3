package oplog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	maxRedirects  = 20
	maxErrorBytes = 64 << 10
)

// temporaryError says that the request is tried again, but not before a pause that the agent asked for.
type temporaryError struct {
	error
	atLeast time.Duration
}

// connector opens connections to the stream.
type connector struct {
	base       address
	parameters url.Values
	shard      string // that the agent must confirm; empty: none
	client     *http.Client
}

// parametersOf returns the parameters of the stream.
func parametersOf(options ConsumerOptions) url.Values {
	parameters := url.Values{"checkpoint": {"1"}}
	if options.Name != "" {
		parameters.Set("name", options.Name)
	}
	if options.Shard != "" {
		parameters.Set("shard", options.Shard)
	}
	addFilter(parameters, "types", options.Types, strings.ToLower)
	addFilter(parameters, "parents", options.Parents, strings.Clone)
	return parameters
}

// addFilter adds a filter. An agent splits a single parameter at its commas, and takes repeated ones as they are.
func addFilter(parameters url.Values, name string, values []string, convert func(string) string) {
	var converted []string
	hasComma := false
	for _, value := range values {
		converted = append(converted, convert(value))
		hasComma = hasComma || strings.Contains(value, ",")
	}
	switch {
	case hasComma:
		parameters[name] = append(converted, converted[0]) // at least two parameters
	case len(values) > 0:
		parameters.Set(name, strings.Join(converted, ","))
	}
}

// open returns the body of an event stream that starts at this position. It calls the function for tokens, and follows
// redirects.
func (c *connector) open(ctx context.Context, position string) (io.ReadCloser, error) {
	token, err := c.base.tokens.fresh(ctx)
	if err != nil {
		return nil, errors.New(err.Error()) // whatever the function returns, it is tried again
	}
	target := c.base.ops(c.parameters)
	for redirects := 0; redirects <= maxRedirects; redirects++ {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
		if err != nil {
			return nil, &PermanentError{err: cause(err)}
		}
		request.Header.Set("Accept", "text/event-stream")
		request.Header.Set("Accept-Encoding", "identity")
		request.Header.Set("Cache-Control", "no-cache")
		request.Header.Set("User-Agent", "oplog-go/"+Version)
		if position != "" {
			request.Header.Set("Last-Event-ID", position)
		}
		c.base.authorize(request, token)
		response, err := c.client.Do(request)
		if err != nil {
			return nil, cause(err)
		}
		switch response.StatusCode {
		case 301, 302, 303, 307, 308:
			response.Body.Close()
			if target, err = response.Location(); err != nil || target.Scheme != "http" && target.Scheme != "https" {
				return nil, &PermanentError{response.StatusCode, fmt.Errorf("HTTP %s leads nowhere", response.Status)}
			}
			continue
		}
		if err := c.checkStream(response); err != nil {
			response.Body.Close()
			return nil, err
		}
		return response.Body, nil
	}
	return nil, &PermanentError{err: fmt.Errorf("more than %d redirects", maxRedirects)}
}

// checkStream returns an error unless the answer is an event stream of the shard. A refused token of a function passes.
func (c *connector) checkStream(response *http.Response) error {
	if response.StatusCode/100 == 2 {
		kind := response.Header.Get("Content-Type")
		if media, _, _ := mime.ParseMediaType(kind); response.StatusCode != 200 || media != "text/event-stream" {
			return &PermanentError{response.StatusCode, fmt.Errorf(
				"HTTP %s with the content type %.100q is not an event stream: is it an agent?", response.Status, kind)}
		}
		return checkShard(response, c.shard)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	if err != nil {
		return err
	}
	said := errors.New(c.base.tokens.refusal(response, body))
	if response.StatusCode == http.StatusUnauthorized && c.base.tokens.function != nil {
		return said
	}
	tooManyShards := response.StatusCode == http.StatusConflict && c.shard != "" // the agent serves too many numbers of shards
	if isTemporary(response.StatusCode) || tooManyShards {
		return temporaryError{said, retryAfter(response, time.Now())}
	}
	return &PermanentError{response.StatusCode, fmt.Errorf("the agent refuses: %w", said)}
}
