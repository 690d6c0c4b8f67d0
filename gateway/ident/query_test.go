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
		q, err := parseQuery(line)
		if want == "" && err == nil || want != "" && (err != nil || q.String() != want) {
			t.Errorf("%q: %v, %v; want %q", line, q, err, want)
		}
	}
}

func TestReplies(t *testing.T) {
	q := query{6193, 23}
	for got, want := range map[string]string{
		nameReply(q, "stjohns"):       "6193 , 23 : USERID : UNIX : stjohns\r\n",
		nameReply(q, "zoë"):           "6193 , 23 : USERID : UNIX , UTF-8 : zoë\r\n",
		nameReply(q, "a\r\nb"):        "6193 , 23 : ERROR : UNKNOWN-ERROR\r\n",
		tokenReply(q, "x-_"):          "6193 , 23 : USERID : OTHER : x-_\r\n",
		refusal(query{}, invalidPort): "0 , 0 : ERROR : INVALID-PORT\r\n",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestToken(t *testing.T) {
	s, err := NewSealer(make([]byte, KeySize))
	if err != nil {
		t.Fatal(err)
	}
	a := Answer{User: "ann", Client: netip.MustParseAddr("10.1.0.9"), At: time.Unix(1e9, 0)}
	token := s.Seal(a)
	if got, err := s.Open(token); err != nil || got != a {
		t.Errorf("%+v, %v", got, err)
	}
	for range 1000 {
		if token := s.Seal(a); token[0] == '-' {
			t.Fatalf("%s is an option", token)
		}
	}
	if token == s.Seal(a) {
		t.Error("two tokens of one user are the same")
	}
	if _, err := s.Open(token[:len(token)-4]); err == nil {
		t.Error("a token that is cut short was read")
	}
}

// FuzzQuery: whatever a peer sends, the reply is one line with the ports of the query.
func FuzzQuery(f *testing.F) {
	f.Add("6193, 23")
	f.Add("65536 , 0")
	f.Fuzz(func(t *testing.T, line string) {
		q, err := parseQuery(line)
		if (err == nil) != (q.Near != 0 && q.Far != 0) {
			t.Fatalf("%v, %v", q, err)
		}
		r := nameReply(q, line)
		if strings.Count(r, "\n") != 1 || !strings.HasSuffix(r, "\r\n") || !strings.HasPrefix(r, q.String()+" : ") {
			t.Fatalf("%q", r)
		}
	})
}
