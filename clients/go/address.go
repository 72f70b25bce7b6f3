package oplog

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// address is the base address of an agent, with the credentials for it.
type address struct {
	url      *url.URL // without credentials: safe to show
	user     string
	password string
	tokens   *tokens // instead of user and password
}

// parseAddress reads a URL with one of the schemes. Credentials in the URL override the given password. Tokens and a
// password exclude each other.
func parseAddress(text, password string, tokens *tokens, schemes ...string) (address, error) {
	parsed, err := url.Parse(text)
	if err != nil { // the error's text may hold a password
		return address{}, errors.New("the address is not a valid URL")
	}
	if !slices.Contains(schemes, parsed.Scheme) || parsed.Hostname() == "" || parsed.Opaque != "" {
		return address{}, errors.New("the address must begin with " + strings.Join(schemes, ":// or ") + ":// and name a host")
	}
	if port := parsed.Port(); port != "" {
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			return address{}, errors.New("the port must be a number from 1 to 65535")
		}
	}
	base := address{url: parsed, password: password, tokens: tokens}
	if parsed.User != nil {
		base.user = parsed.User.Username()
		base.password, _ = parsed.User.Password()
		parsed.User = nil
	}
	if tokens.isGiven() && base.user+base.password+password != "" {
		return address{}, errors.New("a token and a password exclude each other: give one of them")
	}
	return base, nil
}

// ops returns the URL of the operations. The parameters are added to those of the base address.
func (a address) ops(parameters url.Values) *url.URL {
	parsed := *a.url
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

// authorize adds the credentials to a request, but only if its scheme, host and port are those of the agent. The token is
// used instead of user and password; empty: none.
func (a address) authorize(request *http.Request, token string) {
	request.URL.User = nil // otherwise net/http sends credentials of a redirect
	switch {
	case origin(request.URL) != origin(a.url):
	case token != "":
		request.Header.Set("Authorization", "Bearer "+token)
	case a.user+a.password != "":
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
