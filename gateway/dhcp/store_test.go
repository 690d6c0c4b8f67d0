// Tests of the file of leases. main_test.go has the helpers: newLAN makes the server's interface and returns the name
// of its other end; newWire sends and receives frames there; start runs a server with a file of leases (leasesFile) and
// returns a journal, which records what its listener was told; macOf(i) is the MAC of device i, and message makes a
// DHCP message of it.

package dhcp

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

func TestRecordsRoundTrip(t *testing.T) {
	for _, want := range []record{
		{addr("10.1.1.1"), client{macOf(1), ""}, "", leased, time.UnixMilli(1), Attachment{}},
		{addr("10.1.1.2"), client{macOf(2), strings.Repeat("\xff", 255)}, "phone", declined, time.UnixMilli(1<<42 + 7),
			Attachment{"port 7", "", MAC{}}},
		{addr("255.255.255.254"), client{macOf(3), "id"}, strings.Repeat("h", maxHostname), known, time.UnixMilli(0),
			Attachment{strings.Repeat("\x00", MaxAgentID), strings.Repeat("r", MaxAgentID), macOf(9)}},
	} {
		if got, err := decodeRecord(want.addr.AsSlice(), want.encode()); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	at := Attachment{"c", "r", macOf(9)}
	f.Add([]byte{10, 1, 1, 1},
		record{addr("10.1.1.1"), client{macOf(1), "id"}, "phone", leased, time.UnixMilli(5), at}.encode())
	f.Add([]byte{10, 1, 1, 1}, []byte{})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		r, err := decodeRecord(key, value)
		if err != nil {
			return
		}
		if again, err := decodeRecord(r.addr.AsSlice(), r.encode()); err != nil || again != r {
			t.Errorf("%+v reads back as %+v: %v", r, again, err)
		}
	})
}

// TestKilledServerKeepsItsLeases: a server that is killed as soon as a client has its ACK has the lease when it starts
// again.
func TestKilledServerKeepsItsLeases(t *testing.T) {
	w := newWire(t, newLAN(t))
	path := leasesFile(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "GATEWAY_TEST_LEASES="+path)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the server", func() bool {
		w.send(station{mac: macOf(1000)}, message(t, dhcpv4.MessageTypeDiscover, macOf(1000)))
		m, _ := w.next(100 * time.Millisecond)
		return m != nil
	})
	want := map[netip.Addr]MAC{}
	for i := range 20 {
		a, _ := netip.AddrFromSlice(
			w.lease(macOf(i), dhcpv4.WithOption(dhcpv4.OptHostName(fmt.Sprint("h", i)))).YourIPAddr.To4())
		want[a] = macOf(i)
	}
	cmd.Process.Kill()
	cmd.Wait()

	s, _ := start(t, path, nil)
	for _, l := range s.Leases() {
		if left := time.Until(l.End); want[l.Addr] != MAC(l.MAC) || left < 50*time.Minute || left > time.Hour ||
			!strings.HasPrefix(l.Hostname, "h") {
			t.Errorf("lease %+v was %x's", l, want[l.Addr])
		}
		delete(want, l.Addr)
	}
	if len(want) > 0 {
		t.Errorf("leases lost: %v", want)
	}
	again := w.lease(macOf(3))
	if ls := s.Leases(); len(ls) != 20 || ls[3].Addr.String() != again.YourIPAddr.String() {
		t.Errorf("client 3 has %s now, of leases %v", again.YourIPAddr, ls)
	}
}

// TestLeaseExpiredWhileDown: the listener is notified when the server is back.
func TestLeaseExpiredWhileDown(t *testing.T) {
	newLAN(t)
	path := leasesFile(t)
	st, err := openStore(path)
	if err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Minute)
	err = st.write([]change{
		{record: record{addr("10.1.1.1"), client{macOf(1), ""}, "", leased, past, Attachment{}}},
		// not of this subnet
		{record: record{addr("10.9.9.9"), client{macOf(2), ""}, "", leased, time.Now().Add(time.Hour), Attachment{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	s, j := start(t, path, nil)
	await(t, "both ends", func() bool { return len(j.all()) == 2 })
	if len(s.Leases()) != 0 {
		t.Errorf("leases %v", s.Leases())
	}
}

func TestBrokenLeasesFile(t *testing.T) {
	newLAN(t)
	path := filepath.Join(t.TempDir(), "leases.db")
	if err := os.WriteFile(path, []byte("this is no database, and not empty either"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(testConfig(path), &journal{}); err == nil || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "move it away") {
		t.Errorf("%v", err)
	}
}

// TestNoAckWithoutDisk: when the leases file cannot be written (its descriptor is closed), clients get no ACK.
func TestNoAckWithoutDisk(t *testing.T) {
	w := newWire(t, newLAN(t))
	s, j := start(t, leasesFile(t), nil)
	if err := s.store.DB.Close(); err != nil {
		t.Fatal(err)
	}
	offer, _ := w.ask(station{mac: macOf(1)}, message(t, dhcpv4.MessageTypeDiscover, macOf(1)))
	w.send(station{mac: macOf(1)},
		message(t, dhcpv4.MessageTypeRequest, macOf(1), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr))))
	await(t, "the error", func() bool { return s.Stats().StoreErrors == 1 })
	await(t, "the lease to be taken back", func() bool { return len(s.Leases()) == 0 })
	if st := s.Stats(); st.Acks != 0 || len(j.all()) != 0 {
		t.Errorf("stats %+v, the listener heard %v", st, j.all())
	}
}

func TestConfigErrors(t *testing.T) {
	for want, edit := range map[string]func(*Config){
		"no interface":          func(c *Config) { c.Interface = "" },
		"no file":               func(c *Config) { c.Path = "" },
		"IPv4 network":          func(c *Config) { c.Subnet = netip.MustParsePrefix("10.1.0.0/31") },
		"no host address":       func(c *Config) { c.Server = addr("10.2.0.1") },
		"lease time":            func(c *Config) { c.Lease = time.Millisecond },
		"addresses a MAC":       func(c *Config) { c.AddressesPerMAC = -1 },
		"MTU 100":               func(c *Config) { c.MTU = 100 },
		"nothing to lease":      func(c *Config) { c.Pools = nil },
		"the lower one first":   func(c *Config) { c.Pools[0].Last = addr("10.1.0.2") },
		"must be host":          func(c *Config) { c.Pools[0].Last = addr("10.1.255.255") },
		"overlaps":              func(c *Config) { c.Pools = append(c.Pools, Range{addr("10.1.40.255"), addr("10.1.50.1")}) },
		"belongs to":            func(c *Config) { c.Static = map[MAC]netip.Addr{macOf(1): serverAddr} },
		"static lease 10.3.0.1": func(c *Config) { c.Static = map[MAC]netip.Addr{macOf(1): addr("10.3.0.1")} },
		"no IPv4 address":       func(c *Config) { c.DNS = []netip.Addr{addr("::1")} },
		"no domain name":        func(c *Config) { c.Domain = "a b" },
		"must be a full URL":    func(c *Config) { c.CaptivePortalURL = "portal" },
		"which the server sets": func(c *Config) { c.Options = []Option{{53, []byte{1}}} },
		"option 43 needs 1 to":  func(c *Config) { c.Options = []Option{{43, nil}} },
		"more than 63":          func(c *Config) { c.DNS = make([]netip.Addr, 64); fill(c.DNS) },
	} {
		cfg := testConfig("-")
		edit(&cfg)
		if _, err := New(cfg, &journal{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q: %v", want, err)
		}
	}
}

func fill(list []netip.Addr) {
	for i := range list {
		list[i] = serverAddr
	}
}
