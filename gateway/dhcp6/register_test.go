package dhcp6

import (
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
)

// registering is a client that sends from an address of its own, and the option with that address.
func registering(i int, addr string, valid time.Duration) (station, dhcpv6.Option) {
	st := stationOf(i)
	st.src = netip.MustParseAddr(addr)
	return st, &dhcpv6.OptIAAddress{IPv6Addr: st.src.AsSlice(), PreferredLifetime: valid / 2, ValidLifetime: valid}
}

func (w *wire) register(st station, options ...dhcpv6.Option) *dhcpv6.Message {
	return w.message(dhcpv6.MessageTypeAddrRegInform, st, options...)
}

// TestRegistration: a client tells an address that it made itself, again, and that it has none any more.
func TestRegistration(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), nil)
	st, option := registering(1, "2001:db8:1:1::77", time.Hour)
	for range 2 {
		r, got := w.ask(st, w.register(st, option))
		if r.MessageType != dhcpv6.MessageTypeAddrRegReply || len(r.Options.Options) != 1 || got.dst.Addr() != st.src ||
			string(r.GetOneOption(dhcpv6.OptionIAAddr).ToBytes()) != string(option.ToBytes()) {
			t.Fatalf("to a registration: %s at %s", r.LongString(0), got.dst)
		}
	}
	list := run.Leases()
	if len(list) != 1 || list[0].Kind != Registered || list[0].MAC != st.mac || list[0].Prefix.Addr() != st.src {
		t.Fatalf("leases %+v", list)
	}
	if left := time.Until(list[0].End); left > time.Hour || left < 50*time.Minute {
		t.Errorf("registered for %s", left)
	}
	moved := st // the same device, with another DUID
	moved.duid = duidOf(9)
	w.ask(moved, w.register(moved, option))
	if list := run.Leases(); len(list) != 1 || string(list[0].DUID) != string(moved.duid) {
		t.Errorf("leases %+v", list)
	}
	_, gone := registering(1, "2001:db8:1:1::77", 0)
	w.ask(moved, w.register(moved, gone))
	if len(run.Leases()) > 0 || !run.has("released "+hardware(st.mac)+" 2001:db8:1:1::77/128") {
		t.Errorf("after the end: %v, %v", run.Leases(), run.all())
	}
}

// TestRegistrationRefused: addresses that a client may not register. Long: one case a line.
func TestRegistrationRefused(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), nil)
	owner, option := registering(1, "2001:db8:1:1::77", time.Hour)
	w.ask(owner, w.register(owner, option))
	thief, _ := registering(2, "2001:db8:1:1::77", time.Hour)
	leased := stationOf(3)
	leased.src = w.lease(leased, 1)
	leasedOption := &dhcpv6.OptIAAddress{IPv6Addr: leased.src.AsSlice(), ValidLifetime: time.Hour}
	elsewhere, elsewhereOption := registering(4, "2001:db8:99::1", time.Hour)
	local := stationOf(5)
	local.src = localOf(local.mac)
	before := len(run.Leases())
	for name, tt := range map[string]struct {
		st      station
		options []dhcpv6.Option
	}{
		"another MAC's":               {thief, []dhcpv6.Option{option}},
		"from another address":        {elsewhere, []dhcpv6.Option{option}},
		"of another network":          {elsewhere, []dhcpv6.Option{elsewhereOption}},
		"leased by DHCP":              {leased, []dhcpv6.Option{leasedOption}},
		"without an address":          {owner, nil},
		"with an Option Request":      {owner, []dhcpv6.Option{option, dhcpv6.OptRequestedOption(23)}},
		"with a server":               {owner, []dhcpv6.Option{option, generic(dhcpv6.OptionServerID, serverDUID)}},
		"a link-local address":        {local, []dhcpv6.Option{&dhcpv6.OptIAAddress{IPv6Addr: local.src.AsSlice()}}},
		"without a client identifier": {station{mac: owner.mac, src: owner.src}, []dhcpv6.Option{option}},
	} {
		w.silent(tt.st.frame(w.register(tt.st, tt.options...).ToBytes()))
		if n := len(run.Leases()); n != before {
			t.Errorf("%s: %d leases", name, n)
		}
	}
	if n := run.Stats().Foreign; n != 1 {
		t.Errorf("%d asked for another's", n)
	}
}

// TestRegistrationInDelegatedPrefix: a client may register an address of the prefix that it has.
func TestRegistrationInDelegatedPrefix(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), nil)
	st := stationOf(1)
	r, _ := w.ask(st, w.message(dhcpv6.MessageTypeRequest, st, iaPD(1)))
	st.src = prefixesOf(r)[0].Addr().Next()
	option := &dhcpv6.OptIAAddress{IPv6Addr: st.src.AsSlice(), ValidLifetime: time.Hour}
	other := stationOf(2)
	other.src = st.src
	w.silent(other.frame(w.register(other, option).ToBytes()))
	w.ask(st, w.register(st, option))
	if n := run.Stats().Registered; n != 1 {
		t.Errorf("%d addresses are registered", n)
	}
}
