// Test of gateways whose records in the store are of different formats, as while they are updated one after the other.

package gateway

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// Records as gateways write them, of the user ada at 10.1.0.6 as a rule, in hexadecimal.
const (
	// format 1, as the first gatewayd wrote it
	format1 = "01" + adaPlain
	// format 2 with a tag that nobody knows yet, 200, beside that of the owner
	format2Unknown = "02" + "020000000002" + "040a010006" + "83" + adaRest + "02" + "01" + "03677731" + "c8" +
		"0568656c6c6f" + adaReading
	// of a format that nobody knows yet
	format3 = "03" + "ff00ff00" + "00"

	adaPlain   = "020000000002" + "040a010006" + "03" + adaRest + adaReading
	adaReading = "070605040302"
	adaRest    = "00" + "0101ff93ebdc03" + "0180808080804000" + "03616461" + "0203010203" + "00" + "80c0e285e368" +
		"ffffffffffffffff7f" + "80b09dc2df01" + "0102ffffffffffffffffff01" + "0304" +
		"1030313233343536373839616263646566" + "0182c49fd50c00" + "0184c49fd50c00" + "808080808020" + "02" +
		"ffffffffffffffffff01" + "0405"
)

// TestTwoFormats: a gateway reads records of the format before and those with fields that it does not know, and shows
// the address of one of a newer format. It leaves all of them as they are, also those of its own set that its file does
// not have: another version of itself wrote them. A record without new fields is written in the older format. Long: the
// same records are written, read and compared.
func TestTwoFormats(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	shared := storeOf(server, "gw1")
	records := map[string]map[string]string{ // by gateway and key
		"gw1": {"10.1.0.99": text(t, format3)},
		"old": {"10.1.0.6": text(t, format1)},
		"new": {"10.1.0.7": text(t, format2Unknown), "10.1.0.8": text(t, format3)},
	}
	for gateway, all := range records {
		for key, content := range all {
			putRecord(t, server, gateway, key, content)
		}
	}
	putRecord(t, server, "gw1", "10.1.0.98", text(t, format1)) // the file does not have it
	how := session.Options{}
	copies := shared.mirror("")
	mirrorTo(copies, &how)
	table, err := session.OpenWith(filepath.Join(t.TempDir(), "s.db"), noPackets{}, slog.New(slog.DiscardHandler), how)
	netnstest.Must(t, err)
	defer table.Close()
	copies.Read(recordsOf(table))
	runUntilEnd(t, shared)
	mine := session.Key{MAC: datapath.MAC{2, 0, 0, 0, 0, 1}, Addr: netip.MustParseAddr("10.1.0.5")}
	netnstest.Must(t, table.Lease(mine, "phone", time.Now().Add(time.Hour)))
	netnstest.Await(t, "the gateway's records are in the store", func() error {
		all, former := contents(t, shared, "gw1"), "10.1.0.98"
		if st := shared.State(); all["10.1.0.5"] == "" || all[former] != "" || st.Newer != 1 {
			return fmt.Errorf("%q, %+v", all, st)
		}
		return nil
	})
	for gateway, all := range records {
		now := contents(t, shared, gateway)
		for key, want := range all {
			if now[key] != want {
				t.Errorf("%s of %s was %q and is %q", key, gateway, want, now[key])
			}
		}
	}
	found := map[string]string{}
	netnstest.Must(t, shared.eachSession(t.Context(), func(c control.ClusterClient) error {
		if isAway := c.Gateway != "gw1"; c.Away != isAway || isAway == (time.Since(c.AsOf) < time.Minute) {
			t.Errorf("%s: away %v, as of %v", c.Gateway, c.Away, c.AsOf)
		}
		found[c.Gateway] += fmt.Sprint(c.Client.Addr, " ", c.Client.User, " ", c.Client.State, ";")
		return nil
	}))
	both := func(a, b string) bool { return found["new"] == a+b || found["new"] == b+a }
	if found["old"] != "10.1.0.6 ada authenticated;" || !both("10.1.0.6 ada authenticated;", "10.1.0.8  ;") {
		t.Errorf("the sessions of others are %q", found)
	}
	var status control.Status
	if shared.showIn(&status); status.Store.Newer != 1 {
		t.Errorf("the status says %+v", status.Store)
	}
	if own := contents(t, shared, "gw1")["10.1.0.5"]; own[0] != 1 {
		t.Errorf("a record without new fields is %q", own)
	}
}

// storeOf is a gateway's store at a server.
func storeOf(server *redistest.Server, gateway string) *sharedStore {
	return &sharedStore{Store: cluster.Open(cluster.Options{Addresses: []string{server.Addr}, Prefix: "test:",
		Gateway: gateway, Instance: "one", Format: session.FormatVersion, Newer: newerRecord,
		Log: slog.New(slog.DiscardHandler), Sessions: func() int { return 0 }})}
}

// putRecord puts a record of a session into the store as a gateway would.
func putRecord(t *testing.T, server *redistest.Server, gateway, key, content string) {
	t.Helper()
	server.CLI("HSET", "test:gateways", gateway, fmt.Sprintf(`{"name":%q,"kinds":["sessions"],"format":3}`, gateway))
	s := storeOf(server, gateway)
	defer s.Close()
	out, err := s.Swap(t.Context(), "sessions", gateway, []cluster.Change{{Key: key, Content: []byte(content)}})
	if err != nil || !out[0].Done {
		t.Fatal(out, err)
	}
}

// contents returns the records of sessions of a gateway's set, by key.
func contents(t *testing.T, s *sharedStore, gateway string) map[string]string {
	t.Helper()
	all := map[string]string{}
	netnstest.Must(t, s.Each(t.Context(), "sessions", gateway, func(key string, r cluster.Record) error {
		all[key] = string(r.Content)
		return nil
	}))
	return all
}

// text is the bytes of a text in hexadecimal.
func text(t *testing.T, digits string) string {
	t.Helper()
	b, err := hex.DecodeString(digits)
	netnstest.Must(t, err)
	return string(b)
}

// runUntilEnd runs a store until the test ends.
func runUntilEnd(t *testing.T, s *sharedStore) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended; s.Close() })
}
