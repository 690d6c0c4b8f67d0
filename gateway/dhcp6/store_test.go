package dhcp6

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv6"
	bolt "go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestFile(t *testing.T) {
	path := leasesFile(t)
	file, err := OpenFile(path)
	netnstest.Must(t, err)
	secret, err := file.Secret()
	netnstest.Must(t, err)
	end := time.Now().Add(time.Hour)
	kept := Record{Kind: Delegated, MAC: macOf(1), IAID: 7, DUID: string(duidOf(1)), Via: localOf(macOf(1)),
		Items: []Item{{netip.MustParsePrefix("2001:db8:1::/60"), end, true},
			{netip.MustParsePrefix("2001:db8:2::/64"), end, false}}}
	ended := Record{Kind: Registered, MAC: macOf(2), DUID: string(duidOf(2)),
		Items: []Item{{Prefix: netip.MustParsePrefix("2001:db8::1/128"), End: end}}}
	netnstest.Must(t, file.Write([]Record{kept, ended}))
	ended.Items = nil
	netnstest.Must(t, file.Write([]Record{ended}))
	netnstest.Must(t, file.DB.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("leases6")).Put([]byte("damaged"), []byte{1})
	}))
	netnstest.Must(t, file.Close())

	file, err = OpenFile(path)
	netnstest.Must(t, err)
	defer file.Close()
	again, err := file.Secret()
	if err != nil || again != secret || secret == [32]byte{} {
		t.Errorf("the secret has changed: %v", err)
	}
	records, damaged, err := file.Load()
	opts := cmp.Options{cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}), cmpopts.EquateApproxTime(time.Second)}
	if diff := cmp.Diff([]Record{kept}, records, opts); diff != "" || damaged != 1 || err != nil {
		t.Errorf("%d damaged, %v\n%s", damaged, err, diff)
	}
}

func TestDamagedRecords(t *testing.T) {
	good := Record{Kind: Address, MAC: macOf(1), DUID: string(duidOf(1)),
		Items: []Item{{Prefix: netip.MustParsePrefix("::1/128"), End: time.Now()}}}
	if _, err := decodeRecord(good.key(), good.encode()); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(key, value []byte) ([]byte, []byte){
		"no value":          func(key, _ []byte) ([]byte, []byte) { return key, nil },
		"another version":   func(key, value []byte) ([]byte, []byte) { value[0]++; return key, value },
		"a cut value":       func(key, value []byte) ([]byte, []byte) { return key, value[:len(value)-1] },
		"no DUID":           func(key, value []byte) ([]byte, []byte) { return key[:keyLen], value },
		"an unknown kind":   func(key, value []byte) ([]byte, []byte) { key[0] = 9; return key, value },
		"a length over 128": func(key, value []byte) ([]byte, []byte) { value[valueLen+16] = 129; return key, value },
		"an address as /64": func(key, value []byte) ([]byte, []byte) { value[valueLen+16] = 64; return key, value },
	} {
		if r, err := decodeRecord(edit(good.key(), good.encode())); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestRestart: leases survive a restart, with their ends, and expire in time.
func TestRestart(t *testing.T) {
	w, path := newWire(t, newLAN(t)), leasesFile(t)
	run := start(t, path, nil)
	st := stationOf(1)
	addr := w.lease(st, 1)
	r, _ := w.ask(st, w.message(dhcpv6.MessageTypeRequest, st, iaPD(2)))
	before := run.Leases()
	run.stop()
	run = start(t, path, nil)
	after := run.Leases()
	opts := cmp.Options{cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}), cmpopts.EquateApproxTime(time.Second)}
	if diff := cmp.Diff(before, after, opts); diff != "" {
		t.Error(diff)
	}
	renewed, _ := w.ask(st, w.message(dhcpv6.MessageTypeRenew, st, iaNA(1, addr), iaPD(2, prefixesOf(r)...)))
	if !slices.Equal(addrsOf(renewed), []netip.Addr{addr}) || !slices.Equal(prefixesOf(renewed), prefixesOf(r)) {
		t.Errorf("renewed: %s", renewed.LongString(0))
	}
	// Another client does not get what is restored.
	other, _ := w.ask(stationOf(2), w.message(dhcpv6.MessageTypeRequest, stationOf(2), iaPD(2, prefixesOf(r)...)))
	if slices.Equal(prefixesOf(other), prefixesOf(r)) || len(prefixesOf(other)) != 1 {
		t.Errorf("another client: %s", other.LongString(0))
	}
	run.Server.mu.Lock()
	for _, it := range run.table.byClient[identity{Address, st.mac, 0, 1, string(st.duid)}].items {
		run.table.extend(it, time.Now())
	}
	run.Server.mu.Unlock()
	await(t, "the end", func() bool { return run.has("released " + hardware(st.mac) + " " + addr.String() + "/128") })
	if n := run.Stats().Expired; n != 1 {
		t.Errorf("%d leases expired", n)
	}
}

// TestKilled: what a client has been told is in the file, however the server ends.
func TestKilled(t *testing.T) {
	w, path := newWire(t, newLAN(t)), leasesFile(t)
	self, err := os.Executable()
	netnstest.Must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "GATEWAY_TEST_LEASES6="+path)
	netnstest.Background(t, cmd)
	await(t, "the server", func() bool {
		w.send(stationOf(0), w.message(dhcpv6.MessageTypeInformationRequest, stationOf(0)))
		r, _ := w.next(100 * time.Millisecond)
		return r != nil
	})
	addrs := map[int]netip.Addr{}
	for i := range 20 {
		addrs[i] = w.lease(stationOf(i), 1)
	}
	netnstest.Must(t, cmd.Process.Kill())
	cmd.Wait()
	run := start(t, path, nil)
	has := map[netip.Addr]MAC{}
	for _, lease := range run.Leases() {
		has[lease.Prefix.Addr()] = lease.MAC
	}
	for i, addr := range addrs {
		if has[addr] != macOf(i) {
			t.Errorf("%s of client %d is lost", addr, i)
		}
	}
}
