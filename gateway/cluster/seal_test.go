package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// signing are the options of a gateway that signs with a key; "": it does not sign.
func signing(s *redistest.Server, name, key string) Options {
	o := options(s, name)
	o.Key = []byte(key)
	return o
}

// TestSeal: a content is what was sealed only with the same key, at the same place, unchanged.
func TestSeal(t *testing.T) {
	nowhere := &redistest.Server{Addr: "127.0.0.1:1"}
	one, two := Open(signing(nowhere, "gw1", "first")), Open(signing(nowhere, "gw2", "second"))
	none := Open(options(nowhere, "gw3"))
	at := recordPlace("sessions", "gw1", "a", "gw1")
	sealed := one.seal(at, []byte("content"))
	if got, err := one.open(at, sealed); err != nil || string(got) != "content" {
		t.Errorf("opened: %q, %v", got, err)
	}
	altered := append([]byte(nil), sealed...)
	altered[len(altered)-1]++
	for name, c := range map[string]struct {
		by   *Store
		at   place
		what []byte
		want error
	}{
		"another key":     {two, at, sealed, errOtherKey},
		"no key":          {none, at, sealed, errNoKey},
		"altered":         {one, at, altered, errAltered},
		"of another key":  {one, recordPlace("sessions", "gw1", "b", "gw1"), sealed, errAltered},
		"of another set":  {one, recordPlace("sessions", "gw2", "a", "gw1"), sealed, errAltered},
		"of another kind": {one, recordPlace("leases", "gw1", "a", "gw1"), sealed, errAltered},
		"another owner":   {one, recordPlace("sessions", "gw1", "a", "gw2"), sealed, errAltered},
		"not signed":      {one, at, []byte("content"), errUnsigned},
		"short":           {one, at, sealed[:sealSize-1], errUnsigned},
		"empty":           {one, at, nil, errUnsigned},
	} {
		if _, err := c.by.open(c.at, c.what); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if got, err := none.open(at, none.seal(at, []byte("content"))); err != nil || string(got) != "content" {
		t.Errorf("without keys: %q, %v", got, err)
	}
}

// TestGatewaysWithOtherKeys: a gateway uses nothing of those with another key or none, says which they are, and counts
// it. Nor do they use anything of it.
func TestGatewaysWithOtherKeys(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, f, _ := join(t, signing(server, "gw1", "first"))
	same, g, _ := join(t, signing(server, "gw2", "first"))
	other, h, _ := join(t, signing(server, "gw3", "second"))
	none, k, _ := join(t, options(server, "gw4"))
	for _, f := range []*file{f, g, h, k} {
		f.put("a", "of "+f.store.Gateway)
	}
	inStore(t, one, f)
	inStore(t, same, g)
	inStore(t, other, h)
	inStore(t, none, k)
	all, err := one.Members(t.Context())
	netnstest.Must(t, err)
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "%s %v %s;", m.Name, m.There, m.Distrust)
	}
	if want := fmt.Sprintf("gw1 true ;gw2 true ;gw3 true %s;gw4 true %s;", errOtherKey, errUnsigned); b.String() != want {
		t.Errorf("members: %s\nwant %s", &b, want)
	}
	told := follow(one)
	told.holds(t, "of the same key", g, "gw2")
	for _, s := range []*Store{other, none} {
		netnstest.Must(t, one.Each(t.Context(), "sessions", s.Gateway, func(key string, r Record) error {
			if r.Owner != "" || r.Version != 0 {
				t.Errorf("%s of %s is used: %+v", key, s.Gateway, r)
			}
			return nil
		}))
		if _, err := s.Ask(t.Context(), "gw1", "echo", nil); !errors.Is(err, ErrSilent) {
			t.Errorf("%s asks: %v", s.Gateway, err)
		}
	}
	if n := one.State().Refused; n < 4 {
		t.Errorf("refused: %d", n)
	}
}

// TestForged: who has the store's password but not the key cannot have a gateway's records changed, nor taken away, nor
// copied elsewhere. The gateway writes them again.
func TestForged(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	s, f, _ := join(t, signing(server, "gw1", "first"))
	two, _, _ := join(t, signing(server, "gw2", "first"))
	told := follow(two)
	f.put("a", "mine")
	f.put("b", "mine too")
	inStore(t, s, f)
	genuine := server.CLI("HGET", "test:sessions:gw1", "a")
	server.CLI("HSET", "test:sessions:gw1", "a", "99 gw2 forged", "b", "99 gw1 forged", "c", genuine)
	f.put("a", "mine again")
	netnstest.Await(t, "the record that seems to be another's is the gateway's", func() error {
		if got := server.CLI("HGET", "test:sessions:gw1", "a"); !strings.HasSuffix(got, "mine again") {
			return errors.New(got)
		}
		return nil
	})
	server.CLI("CLIENT", "KILL", "TYPE", "normal")
	inStore(t, s, f)
	if st := s.State(); st.Foreign != 0 || st.Refused == 0 {
		t.Errorf("%+v", st)
	}
	told.holds(t, "what another gateway is told", f, "gw1")
}

// TestQuestionAgain: a signed question that somebody sends again later is not answered.
func TestQuestionAgain(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	one, _, _ := join(t, signing(server, "gw1", "first"))
	two, _, _ := join(t, signing(server, "gw2", "first"))
	await(t, one, true)
	await(t, two, true)
	if !one.asked(two.token()) {
		t.Error("a question of now is not answered")
	}
	late := fmt.Sprintf("%d-token", time.Now().Add(-2*askMost).UnixMilli())
	if one.asked(late) || one.asked("token") {
		t.Error("a former question is answered")
	}
	answered := make(chan string, 2)
	one.Answer("echo", func(_ context.Context, from string, body []byte) ([]byte, error) {
		answered <- string(body)
		return nil, nil
	})
	for token, body := range map[string]string{late: "late", two.token(): "now"} {
		sealed := two.seal(messagePlace("gw2", "gw1", "echo", token), []byte(body))
		netnstest.Must(t, two.asking.XAdd(t.Context(), &redis.XAddArgs{Stream: "test:ask:gw1",
			Values: []any{"from", "gw2", "topic", "echo", "token", token, "body", sealed}}).Err())
		if body == "late" {
			continue
		}
		if got := <-answered; got != "now" {
			t.Errorf("%q was answered", got)
		}
	}
}

// BenchmarkSeal signs, and checks, a session's record.
func BenchmarkSeal(b *testing.B) {
	s := Open(signing(&redistest.Server{Addr: "127.0.0.1:1"}, "gw1", strings.Repeat("k", 64)))
	defer s.Close()
	content, at := []byte(strings.Repeat("x", 300)), recordPlace("sessions", "gw1", "10.1.0.5", "gw1")
	for b.Loop() {
		if _, err := s.open(at, s.seal(at, content)); err != nil {
			b.Fatal(err)
		}
	}
}
