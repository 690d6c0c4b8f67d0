package dhcp6

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
)

// FuzzFrame: a frame that is read makes the same datagram again, and nothing beyond its bytes is read.
func FuzzFrame(f *testing.F) {
	f.Add(stationOf(1).frame([]byte{1, 0, 0, 1}))
	f.Add(stationOf(1).frame(nil))
	f.Add(make([]byte, ethernetLen+ipv6Len+udpLen))
	f.Fuzz(func(t *testing.T, frame []byte) {
		got, err := parseFrame(slices.Clip(frame))
		if err != nil {
			return
		}
		again, err := parseFrame(got.frame())
		if err != nil || again.src != got.src || again.dst != got.dst || again.srcMAC != got.srcMAC ||
			!bytes.Equal(again.payload, got.payload) {
			t.Errorf("%+v is %+v again, %v", got, again, err)
		}
	})
}

// FuzzMessage: whatever a client sends, its answer is a message that fits a frame, and what it gets is within bounds,
// within the pools, and nobody else's.
func FuzzMessage(f *testing.F) {
	w := &wire{t: f}
	st := stationOf(1)
	for kind := range dhcpv6.MessageTypeAddrRegReply + 2 {
		hint := netip.PrefixFrom(netip.IPv6Unspecified(), 60)
		f.Add(w.message(kind, st, iaNA(1), iaPD(2, hint), dhcpv6.OptRequestedOption(23, 148)).ToBytes(), byte(1), uint16(0))
		f.Add(w.message(kind, st, iaNA(1, onLink.Addr()), iaNA(1), iaPD(1, parcels)).ToBytes(), byte(2), uint16(3))
	}
	_, option := registering(1, "2001:db8:1:1::77", time.Hour)
	f.Add(w.register(st, option).ToBytes(), byte(0), uint16(0))
	s := known(f, func(cfg *Config) {
		cfg.MaxAddresses, cfg.MaxPrefixes = 100, 50
		cfg.Lengths = Lengths{Usual: 64, Shortest: 58, Longest: 70}
	})
	f.Fuzz(func(t *testing.T, message []byte, number byte, session uint16) {
		rq, err := parseMessage(slices.Clip(message))
		if err != nil {
			return
		}
		rq.mac, rq.source, rq.session = macOf(int(number)), localOf(macOf(int(number))), session
		if addr := rq.registered(); rq.kind == dhcpv6.MessageTypeAddrRegInform {
			if !addr.IsGlobalUnicast() || session != 0 {
				return
			}
			rq.source = addr
		}
		now := time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		result, err := s.answer(rq, now)
		if err == nil && len(result.payload) > 0 {
			checkAnswer(t, rq, message, result.payload)
		}
		checkTable(t, s.table)
		s.table.expire(now.Add(time.Duration(number)*time.Minute), 10)
		s.pending = nil
		if number%16 == 0 {
			s.mu.Unlock()
			s.End(rq.client())
			s.mu.Lock()
			if session != 0 && s.table.owns(rq.client()) {
				t.Errorf("%s has leases after its end", rq.client())
			}
		}
	})
}

// checkAnswer checks a reply to a message.
func checkAnswer(t *testing.T, rq *request, message, payload []byte) {
	t.Helper()
	if len(payload) > maxPayload && len(payload) > len(message) {
		t.Errorf("an answer of %d bytes", len(payload))
	}
	unread, clients := 0, 0
	for code, data := range options(payload[headerLen:], &unread) {
		if code == dhcpv6.OptionClientID {
			clients++
			if string(data) != rq.duid {
				t.Errorf("the answer is for %x", data)
			}
		}
	}
	if unread > 0 || clients > 1 || !bytes.Equal(payload[1:headerLen], message[1:headerLen]) {
		t.Errorf("answer %x", payload)
	}
}

// checkTable compares the table's counts with its leases, and its leases with each other.
func checkTable(t *testing.T, tb *table) {
	t.Helper()
	total, held, aside := map[Kind]int{}, map[holder]int{}, 0
	var delegated []netip.Prefix
	for prefix, it := range tb.taken {
		if it.owner == nil {
			aside++
			continue
		}
		total[it.owner.kind]++
		held[holder{it.owner.client(), it.owner.kind}]++
		if it.owner.kind == Delegated {
			delegated = append(delegated, prefix)
		}
		if it.prefix != prefix || !it.Queued() || !slices.Contains(it.owner.items, it) ||
			tb.byClient[it.owner.identity] != it.owner {
			t.Errorf("%s is %+v", prefix, it)
		}
	}
	slices.SortFunc(delegated, netip.Prefix.Compare)
	for i, prefix := range delegated {
		if !parcels.Overlaps(prefix) || i > 0 && delegated[i-1].Overlaps(prefix) {
			t.Errorf("delegated %v", delegated)
		}
	}
	for kind, n := range total {
		if _, all := tb.limits(kind); n > all || n != tb.total[kind] {
			t.Errorf("%d of %s, counted %d, allowed %d", n, kind, tb.total[kind], all)
		}
	}
	checkSessions(t, tb)
	for of, n := range held {
		if each, _ := tb.limits(of.kind); n > each || n != tb.held[of] {
			t.Errorf("%v has %d, counted %d, allowed %d", of, n, tb.held[of], each)
		}
	}
	if aside != tb.declined || len(held) != len(tb.held) {
		t.Errorf("%d set aside, counted %d; %d hold something, counted %d", aside, tb.declined, len(held), len(tb.held))
	}
}

// checkSessions compares the table's leases with those that it finds by their sessions.
func checkSessions(t *testing.T, tb *table) {
	t.Helper()
	found := 0
	for c, all := range tb.sessions {
		for _, b := range all {
			if found++; b.client() != c || c.Session == 0 || tb.byClient[b.identity] != b || b.kind != Delegated {
				t.Errorf("%s has %+v", c, b)
			}
		}
	}
	for id := range tb.byClient {
		if id.session != 0 {
			found--
		}
	}
	if found != 0 {
		t.Errorf("%d more of sessions than there are", found)
	}
}

// FuzzRecord: a record that is read is written as it was.
func FuzzRecord(f *testing.F) {
	r := Record{Kind: Delegated, MAC: macOf(1), IAID: 7, DUID: string(duidOf(1)), Via: localOf(macOf(1)),
		Items: []Item{{Prefix: parcels, End: time.Unix(1, 0), Wished: true}}}
	f.Add(r.key(), r.encode())
	r.Session = 7
	f.Add(r.key(), r.encode())
	f.Fuzz(func(t *testing.T, key, value []byte) {
		r, err := decodeRecord(slices.Clip(key), slices.Clip(value))
		if err == nil && (!bytes.Equal(r.key(), key) || !bytes.Equal(r.encode(), value)) {
			t.Errorf("%x and %x of %x and %x", r.key(), r.encode(), key, value)
		}
	})
}

// TestBadOptions: what can be understood of a message is answered.
func TestBadOptions(t *testing.T) {
	s, st := known(t, nil), stationOf(1)
	good := (&wire{}).message(dhcpv6.MessageTypeRequest, st, iaNA(1)).ToBytes()
	with := func(code uint16, data ...byte) []byte {
		b := binary.BigEndian.AppendUint16(slices.Clone(good), code)
		return append(binary.BigEndian.AppendUint16(b, uint16(len(data))), data...)
	}
	for name, message := range map[string][]byte{
		"a short IA":            with(3, 0, 0),
		"an IA twice":           with(3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0),
		"an odd Option Request": with(6, 0, 23, 0),
		"a second client":       with(1, 0, 3, 1),
		"an empty option":       with(39),
		"an option cut off":     append(slices.Clone(good), 0, 39, 1, 0, 7),
		"half an option's head": append(slices.Clone(good), 0, 39, 1),
		"a prefix of 129 bits": with(25, slices.Concat(
			make([]byte, 12), []byte{0, 26, 0, 25}, make([]byte, 8), []byte{129}, make([]byte, 16))...),
		"an address that is short":  with(3, slices.Concat(make([]byte, 12), []byte{0, 5, 0, 3, 1, 2, 3})...),
		"an unknown option":         with(65000, 1, 2, 3),
		"an option of another kind": with(16, 1),
	} {
		r, err := dhcpv6.MessageFromBytes(exchange(t, s, st, message))
		if err != nil || len(addrsOf(r)) == 0 {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}
