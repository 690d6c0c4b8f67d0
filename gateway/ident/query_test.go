// Tests of the ident protocol (RFC 1413): queries, replies, and the tokens by which a reply names a user.

package ident

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestParseQuery(t *testing.T) {
	for line, want := range map[string]string{
		"6193, 23": "6193 , 23", "1,65535": "1 , 65535", " 6193 ,\t23 ": "6193 , 23",
		"0, 23": "", "65536,1": "", "1": "", "": "", "1,2,3": "", "+1,2": "", "1 2,3": "", "000001,2": "", "-1,2": "",
	} {
		asked, err := parseQuery(line)
		if want == "" && err == nil || want != "" && (err != nil || asked.String() != want) {
			t.Errorf("%q: %v, %v; want %q", line, asked, err, want)
		}
	}
}

func TestReplies(t *testing.T) {
	asked := query{6193, 23}
	for got, want := range map[string]string{
		nameReply(asked, "stjohns"):   "6193 , 23 : USERID : UNIX : stjohns\r\n",
		nameReply(asked, "zoë"):       "6193 , 23 : USERID : UNIX , UTF-8 : zoë\r\n",
		nameReply(asked, "a\r\nb"):    "6193 , 23 : ERROR : UNKNOWN-ERROR\r\n",
		tokenReply(asked, "x-_"):      "6193 , 23 : USERID : OTHER : x-_\r\n",
		refusal(query{}, invalidPort): "0 , 0 : ERROR : INVALID-PORT\r\n",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestToken: tokens name user, client and time, by both families, and no two are the same. One of a version that knew
// IPv4 alone is read.
func TestToken(t *testing.T) {
	sealer, err := NewSealer(make([]byte, KeySize))
	if err != nil {
		t.Fatal(err)
	}
	for _, client := range []string{"10.1.0.9", "2001:db8::9"} {
		answer := Answer{User: "ann", Client: netip.MustParseAddr(client), At: time.Unix(1e9, 0)}
		token := sealer.Seal(answer)
		if got, err := sealer.Open(token); err != nil || got != answer {
			t.Errorf("%+v, %v", got, err)
		}
		for range 1000 {
			if token := sealer.Seal(answer); token[0] == '-' {
				t.Fatalf("%s is an option", token)
			}
		}
		if token == sealer.Seal(answer) {
			t.Error("two tokens of one user are the same")
		}
		if _, err := sealer.Open(token[:len(token)-4]); err == nil {
			t.Error("a token that is cut short was read")
		}
	}
	got, err := sealer.Open("yX0afiEbZbZ0foRAoi33D3V-VFNqHMOxp6M8tMWG9l3JsncOBmu0FUIRAA")
	if want := (Answer{User: "ann", Client: netip.MustParseAddr("10.1.0.9"), At: time.Unix(1e9, 0)}); got != want {
		t.Errorf("an old token is of %+v, %v", got, err)
	}
}

// FuzzQuery: whatever a peer sends, the reply is one line with the ports of the query.
func FuzzQuery(f *testing.F) {
	f.Add("6193, 23")
	f.Add("65536 , 0")
	f.Fuzz(func(t *testing.T, line string) {
		asked, err := parseQuery(line)
		if (err == nil) != (asked.Near != 0 && asked.Far != 0) {
			t.Fatalf("%v, %v", asked, err)
		}
		r := nameReply(asked, line)
		if strings.Count(r, "\n") != 1 || !strings.HasSuffix(r, "\r\n") || !strings.HasPrefix(r, asked.String()+" : ") {
			t.Fatalf("%q", r)
		}
	})
}
