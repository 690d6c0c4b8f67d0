package wispr

import (
	"encoding/xml"
	"strings"
	"testing"
)

// parsed is a message as a smart client reads it.
type parsed struct {
	XMLName xml.Name `xml:"WISPAccessGatewayParam"`
	Inner   []struct {
		XMLName      xml.Name
		MessageType  int
		ResponseCode int
		LoginURL     string
		ReplyMessage string
		LogoffURL    string
	} `xml:",any"`
}

// read returns the message of a page, of the only comment in it.
func read(t *testing.T, page string) (p parsed) {
	t.Helper()
	_, rest, begins := strings.Cut(page, "<!--")
	body, after, ends := strings.Cut(rest, "-->")
	if !begins || !ends || strings.Contains(after, "-->") {
		t.Fatalf("no single comment:\n%s", page)
	}
	if err := xml.Unmarshal([]byte(strings.TrimSpace(body)), &p); err != nil {
		t.Fatalf("%v:\n%s", err, page)
	}
	if len(p.Inner) != 1 {
		t.Fatalf("%d messages:\n%s", len(p.Inner), page)
	}
	return p
}

// TestMessages compares each kind of message, as a client's parser reads it, with appendix D.
func TestMessages(t *testing.T) {
	for _, c := range []struct {
		name    string
		message Message
	}{
		{"Redirect", Message{Kind: Redirect, LoginURL: "https://portal.example/wispr/login?a=1&b=2"}},
		{"AuthenticationReply", Message{Kind: Authentication, Code: Succeeded, LogoffURL: "https://portal.example/o"}},
		{"AuthenticationReply", Message{Kind: Authentication, Code: Rejected, Text: "no such user"}},
		{"AuthenticationPollReply", Message{Kind: Poll, Code: ServerError, Text: "later"}},
		{"LogoffReply", Message{Kind: Logoff, Code: LoggedOff}},
		{"AbortLoginReply", Message{Kind: AbortLogin, Code: Aborted}},
	} {
		got := read(t, string(c.message.Page("Wi-Fi"))).Inner[0]
		if got.XMLName.Local != c.name || got.MessageType != int(c.message.Kind) ||
			got.ResponseCode != int(c.message.Code) || got.LoginURL != c.message.LoginURL ||
			got.ReplyMessage != c.message.Text || got.LogoffURL != c.message.LogoffURL {
			t.Errorf("%+v is read as %+v", c.message, got)
		}
	}
}

// FuzzMessage holds that no text, of a server or of a client, ends the comment or the XML.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{"no", "--><script>alert(1)</script>", "---", "-----", "]]>", "</ReplyMessage>",
		"a\x00b\xff"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, title, reply string) {
		got := read(t, string(Message{Kind: Poll, Code: Rejected, Text: reply}.Page(title))).Inner[0]
		if reply != "" && got.ReplyMessage == "" && strings.TrimSpace(reply) != "" {
			t.Errorf("%q is lost", reply)
		}
	})
}
