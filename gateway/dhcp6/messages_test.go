package dhcp6

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// TestLeaseAndLeave follows one client from SOLICIT to RELEASE, with an address and a prefix. Long: the steps of one
// exchange, each of which needs the one before.
func TestLeaseAndLeave(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), nil)
	st := stationOf(1)
	offer, got := w.ask(st, w.message(dhcpv6.MessageTypeSolicit, st, iaNA(1), iaPD(2)))
	if offer.MessageType != dhcpv6.MessageTypeAdvertise || offer.Options.Preference() != 255 {
		t.Fatalf("to a SOLICIT: %s", offer.LongString(0))
	}
	if got.dstMAC != st.mac || got.dst != netip.AddrPortFrom(localOf(st.mac), clientPort) ||
		!got.src.Addr().IsLinkLocalUnicast() {
		t.Errorf("the reply goes from %s to %s", got.src, got.dst)
	}
	if len(run.Leases()) > 0 {
		t.Error("an ADVERTISE has leased something")
	}
	addr, prefix := addrsOf(offer)[0], prefixesOf(offer)[0]
	if !pooled.Contains(addr) || !parcels.Contains(prefix.Addr()) || prefix.Bits() != 64 {
		t.Errorf("offered %s and %s", addr, prefix)
	}
	for _, kind := range []dhcpv6.MessageType{
		dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind, dhcpv6.MessageTypeRequest,
	} {
		r, _ := w.ask(st, w.message(kind, st, iaNA(1, addr), iaPD(2, prefix)))
		if !slices.Equal(addrsOf(r), []netip.Addr{addr}) || !slices.Equal(prefixesOf(r), []netip.Prefix{prefix}) {
			t.Fatalf("to a %s: %s", kind, r.LongString(0))
		}
		if ia := r.Options.OneIANA(); ia.T1 == 0 || ia.T2 <= ia.T1 || ia.T2 > 48*60*1e9 {
			t.Errorf("T1 %s, T2 %s", ia.T1, ia.T2)
		}
	}
	list := run.Leases()
	if len(list) != 2 || list[0].Prefix.Addr() != addr || list[1].Prefix != prefix || list[1].Kind != Delegated ||
		list[0].MAC != st.mac || string(list[0].DUID) != string(st.duid) || list[1].IAID != 2 ||
		list[1].Via != localOf(st.mac) {
		t.Fatalf("leases %+v", list)
	}
	r, _ := w.ask(st, w.message(dhcpv6.MessageTypeRelease, st, iaNA(1, addr), iaPD(2, prefix), iaNA(9, addr)))
	if code := r.Options.Status().StatusCode; code != iana.StatusSuccess || len(r.Options.IANA()) != 1 ||
		r.Options.OneIANA().Options.Status().StatusCode != iana.StatusNoBinding {
		t.Errorf("to a RELEASE: %s", r.LongString(0))
	}
	if len(run.Leases()) > 0 || !run.has("released "+hardware(st.mac)+" "+prefix.String()) {
		t.Errorf("after a RELEASE: %v, %v", run.Leases(), run.all())
	}
	if again := w.lease(st, 1); again != addr {
		t.Errorf("%s instead of %s after a RELEASE", again, addr)
	}
}

// TestReplies: what each message is answered with, beyond what TestLeaseAndLeave shows. Long: one case a line.
func TestReplies(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), nil)
	first, second := stationOf(1), stationOf(2)
	addr := w.lease(first, 1)
	elsewhere := netip.MustParseAddr("2001:db8:99::1")
	message := func(kind dhcpv6.MessageType, options ...dhcpv6.Option) *dhcpv6.Message {
		return w.message(kind, second, options...)
	}
	statusOf := func(r *dhcpv6.Message) iana.StatusCode {
		found := r.Options.Status()
		if ia := r.Options.OneIANA(); ia != nil {
			found = ia.Options.Status()
		}
		if found == nil {
			return 0xffff
		}
		return found.StatusCode
	}
	const none iana.StatusCode = 0xffff
	rapid := generic(dhcpv6.OptionRapidCommit, nil)
	for _, tt := range []struct {
		name   string
		m      *dhcpv6.Message
		kind   dhcpv6.MessageType
		status iana.StatusCode
		addrs  int
	}{
		{"rapid commit", message(dhcpv6.MessageTypeSolicit, rapid, iaNA(1)), dhcpv6.MessageTypeReply, none, 1},
		{"several IAs", message(dhcpv6.MessageTypeSolicit, iaNA(1), iaNA(2), iaNA(3)), dhcpv6.MessageTypeAdvertise, none, 3},
		{"rapid commit without IAs", message(dhcpv6.MessageTypeSolicit, rapid), dhcpv6.MessageTypeAdvertise, none, 0},
		{"request of an address of another network", message(dhcpv6.MessageTypeRequest, iaNA(8, elsewhere)),
			dhcpv6.MessageTypeReply, iana.StatusNotOnLink, 0},
		{"request of another's address", message(dhcpv6.MessageTypeRequest, iaNA(4, addr)), dhcpv6.MessageTypeReply, none, 1},
		{"renewal of another's address", message(dhcpv6.MessageTypeRenew, iaNA(5, addr)), dhcpv6.MessageTypeReply,
			iana.StatusNoBinding, 0},
		{"renewal with a new IA", message(dhcpv6.MessageTypeRenew, iaNA(6)), dhcpv6.MessageTypeReply, none, 1},
		{"rebinding of nothing", message(dhcpv6.MessageTypeRebind, iaNA(7, addr)), dhcpv6.MessageTypeReply,
			iana.StatusNoBinding, 0},
		{"confirmation", message(dhcpv6.MessageTypeConfirm, iaNA(1, addr)), dhcpv6.MessageTypeReply, iana.StatusSuccess, 0},
		{"confirmation elsewhere", message(dhcpv6.MessageTypeConfirm, iaNA(1, addr, elsewhere)), dhcpv6.MessageTypeReply,
			iana.StatusNotOnLink, 0},
		{"release of another's", message(dhcpv6.MessageTypeRelease, iaNA(9, addr)), dhcpv6.MessageTypeReply,
			iana.StatusNoBinding, 0},
		{"decline of another's", message(dhcpv6.MessageTypeDecline, iaNA(9, addr)), dhcpv6.MessageTypeReply,
			iana.StatusNoBinding, 0},
	} {
		r, _ := w.ask(second, tt.m)
		if r.MessageType != tt.kind || statusOf(r) != tt.status || len(addrsOf(r)) != tt.addrs ||
			slices.Contains(addrsOf(r), addr) {
			t.Errorf("%s: %s", tt.name, r.LongString(0))
		}
		if id := r.Options.ClientID(); id == nil || string(id.ToBytes()) != string(second.duid) {
			t.Errorf("%s: client %v", tt.name, id)
		}
		if string(r.GetOneOption(dhcpv6.OptionServerID).ToBytes()) != string(serverDUID) {
			t.Errorf("%s: server %s", tt.name, r.GetOneOption(dhcpv6.OptionServerID))
		}
	}
	if st := run.Stats(); st.Foreign != 5 || st.Malformed != 0 {
		t.Errorf("stats %+v", st)
	}
}

// TestInformation: options without a lease, also where there are no prefixes.
func TestInformation(t *testing.T) {
	w := newWire(t, newLAN(t))
	start(t, leasesFile(t), func(cfg *Config) { cfg.Prefixes = nil })
	st := stationOf(1)
	all := []dhcpv6.OptionCode{1, 2, 23, 24, 32, 103}
	for _, tt := range []struct {
		name string
		st   station
		asks []dhcpv6.OptionCode
		want []dhcpv6.OptionCode
	}{
		{"no Option Request", st, nil, all},
		{"no client identifier", station{mac: st.mac}, nil, all[1:]},
		{"DNS alone", st, []dhcpv6.OptionCode{23}, []dhcpv6.OptionCode{1, 2, 23, 103}},
		{"registration", st, []dhcpv6.OptionCode{32, 148}, []dhcpv6.OptionCode{1, 2, 32, 103, 148}},
	} {
		m := w.message(dhcpv6.MessageTypeInformationRequest, tt.st)
		if tt.asks != nil {
			m.AddOption(dhcpv6.OptRequestedOption(tt.asks...))
		}
		r, _ := w.ask(tt.st, m)
		var got []dhcpv6.OptionCode
		for _, option := range r.Options.Options {
			got = append(got, option.Code())
		}
		slices.Sort(got)
		if r.MessageType != dhcpv6.MessageTypeReply || !slices.Equal(got, tt.want) {
			t.Errorf("%s: options %d, want %d", tt.name, got, tt.want)
		}
		if string(r.GetOneOption(dhcpv6.OptionCaptivePortal).ToBytes()) != "https://portal.example/api" {
			t.Errorf("%s: portal %s", tt.name, r.GetOneOption(dhcpv6.OptionCaptivePortal))
		}
	}
	r, _ := w.ask(st, w.message(dhcpv6.MessageTypeSolicit, st, iaNA(1), iaPD(1)))
	if ia := r.Options.OneIANA(); ia.Options.Status().StatusCode != iana.StatusNoAddrsAvail {
		t.Errorf("an address without pools: %s", r.LongString(0))
	}
	if ia := r.Options.OneIAPD(); ia.Options.Status().StatusCode != iana.StatusNoPrefixAvail {
		t.Errorf("a prefix without pools: %s", r.LongString(0))
	}
}

// TestOwnResolvers: a client is told the DNS servers that are its own, and others those of all.
func TestOwnResolvers(t *testing.T) {
	w := newWire(t, newLAN(t))
	own := netip.MustParseAddr("2001:db8:9::53")
	start(t, leasesFile(t), func(cfg *Config) {
		cfg.DNSOf = func(c Client) []netip.Addr {
			if c.MAC == MAC(stationOf(1).mac) {
				return []netip.Addr{own}
			}
			return nil
		}
	})
	for i, want := range []netip.Addr{own, netip.MustParseAddr("2001:db8:1:1::1")} {
		st := stationOf(i + 1)
		r, _ := w.ask(st, w.message(dhcpv6.MessageTypeInformationRequest, st))
		if got := r.Options.DNS(); len(got) != 1 || !got[0].Equal(want.AsSlice()) {
			t.Errorf("client %d is told %v, want %s", i+1, got, want)
		}
	}
}

// TestSilence: messages that get no answer, and how they are counted.
func TestSilence(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), nil)
	st := stationOf(1)
	other := generic(dhcpv6.OptionServerID, []byte{0, 3, 0, 1, 9, 9, 9, 9, 9, 9})
	global := station{mac: st.mac, duid: st.duid, src: netip.MustParseAddr("2001:db8:1:1::7")}
	solicit := func(st station, options ...dhcpv6.Option) []byte {
		return st.frame(w.message(dhcpv6.MessageTypeSolicit, st, options...).ToBytes())
	}
	request := w.message(dhcpv6.MessageTypeRequest, st, iaNA(1))
	request.UpdateOption(other)
	broken := solicit(st, iaNA(1))
	broken[len(broken)-1] ^= 1
	for name, tt := range map[string]struct {
		frame []byte
		count func(Stats) uint64
	}{
		"no client identifier":    {solicit(station{mac: st.mac}, iaNA(1)), func(st Stats) uint64 { return st.Malformed }},
		"a server in a SOLICIT":   {solicit(st, other), func(st Stats) uint64 { return st.Malformed }},
		"another server's":        {st.frame(request.ToBytes()), func(st Stats) uint64 { return st.OtherServer }},
		"a source beyond the LAN": {solicit(global, iaNA(1)), func(st Stats) uint64 { return st.Spoofed }},
		"a wrong checksum":        {broken, func(st Stats) uint64 { return st.Malformed }},
		"three bytes":             {st.frame([]byte{1, 2, 3}), func(st Stats) uint64 { return st.Malformed }},
		"an unknown type":         {st.frame([]byte{99, 0, 0, 1}), func(st Stats) uint64 { return st.Malformed }},
		"a relay":                 {st.frame(bare(12)), func(st Stats) uint64 { return st.Relayed }},
		"a server's":              {st.frame(bare(7)), func(st Stats) uint64 { return st.Rogue }},
		"an information request with an IA": {
			st.frame(w.message(dhcpv6.MessageTypeInformationRequest, st, iaNA(1)).ToBytes()),
			func(st Stats) uint64 { return st.Malformed }},
		"a confirmation of nothing": {
			st.frame(w.message(dhcpv6.MessageTypeConfirm, st, iaNA(1)).ToBytes()),
			func(st Stats) uint64 { return st.Confirms }},
	} {
		before := tt.count(run.Stats())
		w.silent(tt.frame)
		if got := tt.count(run.Stats()); got != before+1 {
			t.Errorf("%s: counted %d times", name, got-before)
		}
	}
	if len(run.Leases()) > 0 {
		t.Errorf("leases %v", run.Leases())
	}
}

// bare is a message of a type with nothing in it.
func bare(kind byte) []byte { return append([]byte{kind}, make([]byte, 40)...) }

// TestRogue: a server on the LAN is reported once, whatever it sends.
func TestRogue(t *testing.T) {
	w := newWire(t, newLAN(t))
	run := start(t, leasesFile(t), nil)
	st := stationOf(1)
	advertise := datagram{
		srcMAC: st.mac, dstMAC: macOf(77), payload: []byte{2, 0, 0, 1},
		src: netip.AddrPortFrom(localOf(st.mac), serverPort), dst: netip.AddrPortFrom(localOf(macOf(77)), clientPort),
	}
	w.silent(advertise.frame())
	w.silent(st.frame([]byte{13, 0, 0, 1}))
	w.silent(stationOf(2).frame([]byte{7, 0, 0, 1}))
	want := []string{
		"rogue " + hardware(st.mac) + " " + localOf(st.mac).String(),
		"rogue " + hardware(macOf(2)) + " " + localOf(macOf(2)).String(),
	}
	if got := run.all(); !slices.Equal(got, want) || run.Stats().Rogue != 3 {
		t.Errorf("%v, want %v", got, want)
	}
}
