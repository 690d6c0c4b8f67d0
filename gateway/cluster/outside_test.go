// Tests of servers behind Sentinels, far away, and of another program. join runs a gateway's store with records of a
// file, and inStore waits until the server has exactly those (store_test.go).

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// TestFailover: when Sentinels make a replica the master, it has the gateway's records, also those that the former
// master took with it and those that were written meanwhile.
func TestFailover(t *testing.T) {
	master, replica := redistest.Start(t, redistest.Place{}), redistest.Start(t, redistest.Place{})
	replica.Replicate(master)
	o := options(master, "gw1")
	o.Addresses, o.Master = []string{redistest.Sentinel(t, "gateways", master, 1)}, "gateways"
	s, f, _ := join(t, o)
	for i := range 300 {
		f.put(fmt.Sprint("k", i), "before")
	}
	inStore(t, s, f)
	replica.Stop() // what the master takes now is lost with it
	for i := range 100 {
		f.put(fmt.Sprint("k", i), "lost")
		f.put(fmt.Sprint("k", 100+i), "")
	}
	inStore(t, s, f)
	master.Kill()
	replica.Continue()
	f.put("k0", "meanwhile")
	netnstest.Await(t, "the replica is the master", func() error {
		out, err := replica.Try("INFO", "replication")
		if err == nil && !strings.Contains(out, "role:master") {
			err = errors.New(out)
		}
		return err
	})
	inStore(t, s, f)
	if got := replica.CLI("HGET", "test:sessions:gw1", "k0"); !strings.HasSuffix(got, " gw1 meanwhile") {
		t.Errorf("the new master has %q", got)
	}
}

// TestSentinelLogin: Sentinels ask for a user and a password that are not the server's. Why the store is away is said
// where they do not let the gateway in or do not know the server.
func TestSentinelLogin(t *testing.T) {
	master := redistest.Start(t, redistest.Place{}, "user default on nopass ~* +@all",
		"user gw on >right ~test:* +@all")
	o := options(master, "gw1")
	o.Addresses, o.Master = []string{redistest.Sentinel(t, "gateways", master, 0, "watch", "other")}, "gateways"
	o.User, o.Password, o.Sentinels = "gw", "right", Login{"watch", "other"}
	s, f, leave := join(t, o)
	f.put("a", "by Sentinels")
	inStore(t, s, f)
	leave()
	for _, c := range []struct {
		change func(*Options)
		why    string
	}{
		{func(o *Options) { o.Sentinels = Login{} }, "store.sentinel_password_file"},
		{func(o *Options) { o.Sentinels.Password = "right" }, "store.sentinel_user"},
		{func(o *Options) { o.Master = "unknown" }, "store.sentinel_master"},
		{func(o *Options) { o.Addresses = []string{"127.0.0.1:1"} }, "no Sentinel answers"},
	} {
		bad := o
		c.change(&bad)
		s, _, leave := join(t, bad)
		netnstest.Await(t, "it is said why: "+c.why, func() error {
			if why := s.State().Why; !strings.Contains(why, c.why) {
				return errors.New(why)
			}
			return nil
		})
		leave()
	}
}

// TestSlow: a server that takes two seconds for each answer is up, and has all in the end.
func TestSlow(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	o := options(server, "gw1")
	o.Addresses = []string{slow(t, server.Addr, 2*time.Second)}
	s, f, _ := join(t, o)
	for i := range 300 {
		f.put(fmt.Sprint("k", i), "x")
	}
	direct := Open(options(server, "gw1"))
	defer direct.Close()
	inStore(t, direct, f)
	await(t, s, true)
	if n := server.CLI("EXISTS", "test:alive:gw1"); n != "1" {
		t.Errorf("the gateway is away in the store: %s", n)
	}
}

// slow passes connections on to a server, whose answers it holds back.
func slow(t *testing.T, to string, delay time.Duration) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	netnstest.Must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				conn.Close()
				continue
			}
			go func() { defer server.Close(); io.Copy(server, conn) }()
			go func() {
				defer conn.Close()
				answer := make([]byte, 64<<10)
				for {
					n, err := server.Read(answer)
					if time.Sleep(delay); err != nil {
						return
					}
					conn.Write(answer[:n])
				}
			}()
		}
	}()
	return l.Addr().String()
}

// TestSize: a signed session takes at most 1.2 KB of the server's memory. cmd/gatewayd tests that its record is no
// longer than these.
func TestSize(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	s, f, _ := join(t, signing(server, "gw1", "key"))
	const records, bytes = 3000, 400
	for i := range records {
		f.put(fmt.Sprintf("10.1.%d.%d", i/256, i%256), strings.Repeat("x", bytes))
	}
	inStore(t, s, f)
	total, err := strconv.Atoi(server.CLI("MEMORY", "USAGE", "test:sessions:gw1", "SAMPLES", "0"))
	netnstest.Must(t, err)
	if each := total / records; each > 1200 {
		t.Errorf("a record of %d bytes takes %d", bytes, each)
	} else {
		t.Logf("a record of %d bytes takes %d", bytes, each)
	}
}

// BenchmarkStart compares 100,000 records with the store, which has them, lacks them, or has others.
func BenchmarkStart(b *testing.B) {
	server := redistest.Start(b, redistest.Place{})
	s := Open(options(server, "gw1"))
	defer s.Close()
	m := s.Mirror("sessions")
	content := []byte(strings.Repeat("x", 250))
	m.Read(func(visit func(string, []byte) error) error {
		for i := range 100_000 {
			if err := visit(fmt.Sprint("k", i), content); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range []struct {
		name    string
		prepare func()
	}{
		{"Lacks", func() { server.CLI("FLUSHALL") }}, {"Others", func() { content[0]++ }}, {"Has", func() {}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				c.prepare()
				m.Compare()
				if err := m.send(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
