package oidc

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// callback is an authorization response (OpenID Connect Core 1.0, 3.1.2.5 and 3.1.2.6): a code, or an error.
type callback struct {
	state, code string
	err         string // "": there is none
	description string // of the error, printable
	issuer      string // RFC 9207; "": not given
}

// Longest parts of a callback, bytes.
const (
	maxQuery = 8 << 10
	maxCode  = 4 << 10
)

// parseCallback reads the query of a callback. A parameter that is there twice is an error (RFC 6749, 3.1).
func parseCallback(query string) (c callback, err error) {
	if len(query) > maxQuery {
		return c, fmt.Errorf("an answer of %d bytes", len(query))
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return c, fmt.Errorf("an answer that is no query: %w", err)
	}
	for name, into := range map[string]*string{"state": &c.state, "code": &c.code, "error": &c.err,
		"error_description": &c.description, "iss": &c.issuer} {
		switch all := values[name]; {
		case len(all) > 1:
			return callback{}, fmt.Errorf("an answer with %q more than once", name)
		case len(all) == 1:
			*into = all[0]
		}
	}
	switch {
	case c.state == "":
		return callback{}, errors.New("an answer without a state")
	case c.code == "" && c.err == "":
		return callback{}, errors.New("an answer with neither a code nor an error")
	case c.code != "" && c.err != "":
		return callback{}, errors.New("an answer with both a code and an error")
	case len(c.code) > maxCode || !plain(c.code) || !plain(c.err) || !plain(c.state) || !plain(c.issuer):
		return callback{}, errors.New("an answer with characters that neither codes nor errors have")
	}
	c.description = session.ForUser(c.description)
	return c, nil
}

// plain reports whether a text has characters of VSCHAR alone (RFC 6749, appendix A).
func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e })
}
