package ident

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// query is a query (RFC 1413, 4): the ports of a TCP connection at the asked host (Near) and at the asking host (Far).
type query struct{ Near, Far uint16 }

// String formats the ports as in a reply.
func (q query) String() string {
	return strconv.Itoa(int(q.Near)) + " , " + strconv.Itoa(int(q.Far))
}

// Errors of replies (RFC 1413, 6).
const (
	invalidPort  = "INVALID-PORT"
	noUser       = "NO-USER"
	hiddenUser   = "HIDDEN-USER"
	unknownError = "UNKNOWN-ERROR"
)

// maxLine is the largest length of a query in bytes, with the end of its line.
const maxLine = 512

// maxUser is the largest length of a user identifier in bytes (RFC 1413, 6).
const maxUser = 512

var errPort = errors.New("no pair of ports")

// parseQuery reads a query without the end of its line. It returns errPort, and the zero query, unless both ports are
// numbers from 1 to 65535.
func parseQuery(line string) (query, error) {
	near, far, two := strings.Cut(line, ",")
	if !two {
		return query{}, errPort
	}
	var asked query
	for _, p := range []struct {
		text string
		to   *uint16
	}{{near, &asked.Near}, {far, &asked.Far}} {
		text := strings.Trim(p.text, " \t")
		if text == "" || len(text) > 5 || strings.Trim(text, "0123456789") != "" {
			return query{}, errPort
		}
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return query{}, errPort
		}
		*p.to = uint16(n)
	}
	return asked, nil
}

// refusal returns a reply with an error, with the end of its line.
func refusal(asked query, problem string) string {
	return asked.String() + " : ERROR : " + problem + "\r\n"
}

// nameReply returns a reply with a user's name. It gives the name's character set if that is not US-ASCII. For a name
// that a reply cannot contain it returns UNKNOWN-ERROR.
func nameReply(asked query, name string) string {
	if name == "" || len(name) > maxUser || strings.ContainsAny(name, "\x00\r\n") || !utf8.ValidString(name) {
		return refusal(asked, unknownError)
	}
	system := "UNIX"
	if strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
		system = "UNIX , UTF-8"
	}
	return asked.String() + " : USERID : " + system + " : " + name + "\r\n"
}

// tokenReply returns a reply with a token in place of a name (type OTHER).
func tokenReply(asked query, token string) string {
	if len(token) > maxUser {
		return refusal(asked, unknownError)
	}
	return asked.String() + " : USERID : OTHER : " + token + "\r\n"
}
