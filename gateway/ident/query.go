package ident

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// query is a query (RFC 1413, 4): the ports of a TCP connection between the asked and the asking host.
type query struct{ Near, Far uint16 }

// String is the port pair of a reply.
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

// maxLine bounds a query with its end, bytes.
const maxLine = 512

// maxUser bounds a user identifier, bytes (RFC 1413, 6).
const maxUser = 512

var errPort = errors.New("no pair of ports")

// parseQuery reads a query without the end of its line. Of a line with a port that does not
// exist it returns errPort, and the zero query.
func parseQuery(line string) (query, error) {
	near, far, two := strings.Cut(line, ",")
	if !two {
		return query{}, errPort
	}
	var q query
	for _, p := range []struct {
		text string
		to   *uint16
	}{{near, &q.Near}, {far, &q.Far}} {
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
	return q, nil
}

// refusal is a reply with an error, with the end of its line.
func refusal(q query, problem string) string {
	return q.String() + " : ERROR : " + problem + "\r\n"
}

// nameReply is a reply with a user's name. The name's character set is named if it is not
// US-ASCII. A name that no reply can have is an unknown error.
func nameReply(q query, name string) string {
	if name == "" || len(name) > maxUser || strings.ContainsAny(name, "\x00\r\n") || !utf8.ValidString(name) {
		return refusal(q, unknownError)
	}
	system := "UNIX"
	if strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
		system = "UNIX , UTF-8"
	}
	return q.String() + " : USERID : " + system + " : " + name + "\r\n"
}

// tokenReply is a reply with a token in place of a name, which the type OTHER stands for.
func tokenReply(q query, token string) string {
	if len(token) > maxUser {
		return refusal(q, unknownError)
	}
	return q.String() + " : USERID : OTHER : " + token + "\r\n"
}
