// Package wispr writes the XML by which smart clients log in without a person: programs of roaming providers that read
// the bodies of an access gateway's answers (Wi-Fi Alliance, Best Current Practices for Wireless Internet Service
// Provider Roaming 1.0, 2003, appendix D).
//
//	client ── GET http://anything/ ──▶ gateway      302, or 200   Redirect:             LoginURL
//	       ── POST LoginURL ─────────▶ login        200           AuthenticationReply:  50, 100, 102, 201 or 255
//	       ── GET LogoffURL ─────────▶ gateway      200           LogoffReply:          150
//
// Browsers show nothing of it: it is in a comment of the page. What a server or a client says is escaped, and a "--",
// which would end the comment, is not left in it.
package wispr

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// Kind is the kind of a message, MessageType in the XML (appendix D.2).
type Kind int

const (
	Redirect       Kind = 100 // answer to the first request: where to log in
	Authentication Kind = 120 // answer to a login
	Logoff         Kind = 130 // answer to a logoff
	Poll           Kind = 140 // answer to a request for the result of a login
	AbortLogin     Kind = 150 // answer to the abort of a login
)

// element is the element of a kind of message.
var element = map[Kind]string{
	Redirect: "Redirect", Authentication: "AuthenticationReply", Logoff: "LogoffReply", Poll: "AuthenticationPollReply",
	AbortLogin: "AbortLoginReply",
}

// Code is the result that a message tells, ResponseCode in the XML (appendix D.3).
type Code int

const (
	NoError     Code = 0
	Succeeded   Code = 50  // the client is logged in
	Rejected    Code = 100 // the name or the password is wrong, or not allowed
	ServerError Code = 102 // no server decided
	LoggedOff   Code = 150
	Aborted     Code = 151
	Internal    Code = 255 // the access gateway failed
)

// Message is one message. Empty fields are left out.
type Message struct {
	Kind Kind
	Code Code

	// Of Redirect.
	Location      string // what the operator calls the place: LocationName
	LoginURL      string
	AbortLoginURL string

	// Of the others.
	Text        string // for the person: ReplyMessage
	LogoffURL   string
	RedirectURL string // where a browser would be sent: RedirectionURL
}

// Comment returns the message in a comment of HTML.
func (m Message) Comment() string {
	var b strings.Builder
	b.WriteString("<!--\n" + `<?xml version="1.0" encoding="UTF-8"?>` + "\n" +
		`<WISPAccessGatewayParam xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"` +
		` xsi:noNamespaceSchemaLocation="http://www.acmewisp.com/WISPAccessGatewayParam.xsd">` + "\n")
	name := element[m.Kind]
	fmt.Fprintf(&b, "<%s>\n", name)
	tag := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "<%s>%s</%s>\n", name, text(value), name)
		}
	}
	tag("MessageType", fmt.Sprint(int(m.Kind)))
	tag("ResponseCode", fmt.Sprint(int(m.Code)))
	if m.Kind == Redirect {
		tag("AccessProcedure", "1.0")
	}
	tag("LocationName", m.Location)
	tag("LoginURL", m.LoginURL)
	tag("AbortLoginURL", m.AbortLoginURL)
	tag("ReplyMessage", m.Text)
	tag("LogoffURL", m.LogoffURL)
	tag("RedirectionURL", m.RedirectURL)
	fmt.Fprintf(&b, "</%s>\n</WISPAccessGatewayParam>\n-->\n", name)
	return b.String()
}

// Page returns a page of HTML with the message, and a text for people who see it.
func (m Message) Page(title string) []byte {
	return []byte("<!DOCTYPE html>\n<html><head><title>" + text(title) + "</title></head><body>\n<p>" + text(title) +
		"</p>\n" + m.Comment() + "</body></html>\n")
}

// text escapes a text of XML. A comment may not have "--" (XML 1.0, 2.5): its second hyphen becomes a reference, which
// programs that read the XML decode.
func text(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder does not fail
	return strings.ReplaceAll(strings.ReplaceAll(b.String(), "--", "-&#45;"), "--", "-&#45;")
}
