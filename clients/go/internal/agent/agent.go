// Package agent is shared by the example programs: the agent's address, its answers, and pauses between attempts.
package agent

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// Address is the base address of an agent, with the credentials for it.
type Address struct {
	URL      *url.URL // without credentials, so that it may be shown
	user     string
	password string
}

// ParseAddress reads a URL with one of the schemes. Credentials in the URL come before the password given.
func ParseAddress(text, password string, schemes ...string) (Address, error) {
	parsed, err := url.Parse(text)
	if err != nil { // its text may hold a password
		return Address{}, errors.New("it cannot be read as a URL")
	}
	known := false
	for _, scheme := range schemes {
		known = known || parsed.Scheme == scheme
	}
	if !known || parsed.Hostname() == "" || parsed.Opaque != "" {
		return Address{}, errors.New("it must begin with " + strings.Join(schemes, ":// or ") + ":// and name a host")
	}
	if port := parsed.Port(); port != "" {
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			return Address{}, errors.New("its port must be a number from 1 to 65535")
		}
	}
	address := Address{URL: parsed, password: password}
	if parsed.User != nil {
		address.user = parsed.User.Username()
		address.password, _ = parsed.User.Password()
		parsed.User = nil
	}
	return address, nil
}

// Ops is the address of the operations, with these parameters besides those of the base address.
func (a Address) Ops(parameters url.Values) *url.URL {
	parsed := *a.URL
	if path := strings.TrimRight(parsed.Path, "/"); strings.HasSuffix(path, "/ops") {
		parsed.Path = path
	} else {
		parsed.Path = path + "/ops"
	}
	parsed.RawPath, parsed.Fragment = "", ""
	if query := parameters.Encode(); parsed.RawQuery != "" && query != "" {
		parsed.RawQuery += "&" + query
	} else {
		parsed.RawQuery += query
	}
	return &parsed
}

// Authorize adds the credentials to a request, but only to one for this agent: the same scheme, host and port.
func (a Address) Authorize(request *http.Request) {
	request.URL.User = nil // or net/http would send those of a redirect
	if origin(request.URL) == origin(a.URL) && a.user+a.password != "" {
		request.SetBasicAuth(a.user, a.password)
	}
}

func origin(parsed *url.URL) string {
	port := parsed.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[parsed.Scheme]
	}
	return parsed.Scheme + "://" + strings.ToLower(parsed.Hostname()) + ":" + port
}

// Client follows no redirects, asks for no compression and uses no connection twice.
func Client() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true
	transport.DisableKeepAlives = true
	transport.MaxResponseHeaderBytes = 64 << 10
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Passes tells whether an answer with this status makes sense to try again.
func Passes(status int) bool {
	return status >= 500 || status == 408 || status == 425 || status == 429
}

// Said is an error answer in words: the status, and the problem document's detail or else the begin of the body.
func Said(response *http.Response, body []byte) string {
	var problem map[string]json.RawMessage // a struct would also take "DETAIL"
	var detail string
	if json.Unmarshal(body, &problem) != nil || json.Unmarshal(problem["detail"], &detail) != nil || detail == "" {
		detail = string(body[:min(len(body), 200)])
	}
	return strings.TrimRight(Plain("HTTP "+response.Status+": "+detail), ": ")
}

// Pointed is the target of a redirect without credentials and parameters.
func Pointed(response *http.Response) string {
	parsed, err := response.Location()
	if err != nil {
		return "nowhere"
	}
	parsed.User, parsed.RawQuery, parsed.Fragment = nil, "", ""
	return Plain(parsed.String())
}

// Plain is foreign text made fit for one line of a terminal.
func Plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if letters := []rune(text); len(letters) > 500 {
		text = string(letters[:500]) + "..."
	}
	return text
}

// Cause is the reason of a failed request, without its address.
func Cause(err error) error {
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
