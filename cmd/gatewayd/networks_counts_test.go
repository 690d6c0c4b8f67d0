// A test of what is counted, and told of clients, in several networks. newNetwork makes the host of a gateway with
// clients and a server, in namespaces (world_test.go); networkOf returns the table of a network for the configuration
// (networks_test.go); an identHost is a server that asks who a client is (ident_test.go).

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestNetworksCountTheirOwn: two networks translate, and packets of connections that are under way bypass the stack by
// the flow cache. Each byte of a client is counted for it and for no client of the other network. One of the networks
// answers ident queries with a token, which ident-token turns into the user; a client of the other one is unknown.
// Long: the steps of one run, each of which needs the state that the one before left.
func TestNetworksCountTheirOwn(t *testing.T) {
	t.Parallel()
	netnstest.NeedTCX(t)
	w := newNetwork(t)
	w.plainTCP("server")
	const nat = "[network.nat]\nmasquerade = true\ninbound = [\"192.0.2.2/32\"]\n"
	w.configureNetworks(false, networkOf("first", 0, nat+"[network.ident]\nenabled = true\nmethod = \"masquerade\"\n"+
		"answer = \"token\"\n"), networkOf("second", 1, nat))
	b := w.addLAN(1)
	w.start()
	eventually(t, "flows of both networks to be cached", func() error {
		st, err := w.status()
		for _, n := range st.Networks {
			if err == nil && n.Datapath != "ebpf, flow cache" {
				err = fmt.Errorf("%s: %s, %s", n.Network, n.Datapath, n.Why)
			}
		}
		return err
	})
	a := w.client()
	verbs, err := w.control()
	must(t, err)
	for user, c := range map[string]*client{"ann": a, "bob": b} {
		if c == b {
			b.lease()
		}
		_, err := verbs.Login(context.Background(), control.LoginRequest{Addr: c.addr, User: user})
		must(t, err)
	}
	upA, downA, upB, downB := w.flow(a, true, 500), w.flow(a, false, 300), w.flow(b, true, 200), w.flow(b, false, 100)
	all := []*flow{upA, downA, upB, downB}
	beforeA, beforeB := a.session().Traffic, b.session().Traffic
	for _, f := range all {
		f.start()
	}
	eventually(t, "packets of each flow", func() error {
		for i, f := range all {
			if n := f.received.Load(); n < 200 {
				return fmt.Errorf("flow %d: %d arrive", i, n)
			}
		}
		return nil
	})
	for i, f := range all {
		f.halt()
		f.expectAll(t, fmt.Sprintf("flow %d", i))
	}
	for _, c := range []struct {
		who    *client
		before control.Traffic
		flows  []control.Traffic
	}{{a, beforeA, []control.Traffic{upA.traffic(true), downA.traffic(false)}},
		{b, beforeB, []control.Traffic{upB.traffic(true), downB.traffic(false)}}} {
		want := sum(append(c.flows, c.before)...)
		eventually(t, "what "+c.who.host+" sent is counted", func() error {
			if got := c.who.session().Traffic; got != want {
				return fmt.Errorf("counted %+v, want %+v", got, want)
			}
			return nil
		})
	}

	server := w.identHost("192.0.2.2")
	server.address = outside.String()
	ofA := a.connect(server)
	var token string
	eventually(t, "a token for the first network's client", func() error {
		reply, err := server.query(a, server.lastQuery())
		_, id, ok := strings.Cut(strings.TrimSpace(reply), "USERID : OTHER : ")
		if plain, bad := base64.RawURLEncoding.DecodeString(id); err == nil && (!ok || bad != nil ||
			bytes.Contains(plain, []byte("ann"))) {
			err = fmt.Errorf("%q, %v", reply, bad)
		}
		token = id
		return err
	})
	if out, err := w.try("gatewayd ident-token --config $DIR/gatewayd.toml " + token); err != nil ||
		!strings.Contains(out, "ann") || !strings.Contains(out, a.addr.String()) {
		t.Errorf("the token %q is of %q, %v", token, out, err)
	}
	ofB := b.connect(server)
	server.expectReply(b, server.lastQuery(), "ERROR : NO-USER")
	if err := errors.Join(ofA.Close(), ofB.Close()); err != nil {
		t.Error(err)
	}
}
