package dhcp6

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// known returns a server without sockets whose secret is 32 zeros, so that its addresses are always the same.
func known(t testing.TB, edit func(*Config)) *Server {
	t.Helper()
	file, err := OpenFile(leasesFile(t))
	netnstest.Must(t, err)
	t.Cleanup(func() { file.Close() })
	netnstest.Must(t, file.DB.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(secretBucket)
		netnstest.Must(t, err)
		return b.Put(secretKey, make([]byte, 32))
	}))
	cfg := testConfig(usualPrefixes)
	cfg.Store, cfg.DNS, cfg.Search, cfg.CaptivePortalURL = file, nil, nil, ""
	if edit != nil {
		edit(&cfg)
	}
	s, err := restored(cfg, &journal{})
	netnstest.Must(t, err)
	return s
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	netnstest.Must(t, err)
	return b
}

// exchange has a server answer a message in bytes.
func exchange(t testing.TB, s *Server, from station, message []byte) []byte {
	t.Helper()
	rq, err := parseMessage(message)
	netnstest.Must(t, err)
	rq.mac, rq.source = from.mac, localOf(from.mac)
	if from.src.IsValid() {
		rq.source = from.src
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	result, err := s.answer(rq, time.Now())
	if err != nil {
		t.Log(err)
	}
	return result.payload
}

// TestBytes: each type of message in bytes, and its answer. The client has the DUID 0004 and 16 bytes of 11, the server
// 0003 0001 0200 0000 0001. Long: one case a message.
func TestBytes(t *testing.T) {
	const (
		client  = "0001 0012 0004 11111111111111111111111111111111"
		server  = "0002 000a 0003 0001 020000000001"
		addr    = "20010db800010001000d 2b116df3f771"
		prefix  = "40 20010db8000100a8 0000000000000000"
		timesA  = "0000069a 00000a90" // T1 and T2
		timesP  = "000006c9 00000adb"
		hours   = "00000e10 00000e10"
		zero    = "00000000 00000000"
		success = "000d 0002 0000"
	)
	iaNA := func(inside string) string { return option("0003", "00000001 "+inside) }
	iaPD := func(inside string) string { return option("0019", "00000002 "+inside) }
	at, as := option("0005", addr+zero), option("0005", addr+hours)
	pdAt, pdAs := option("001a", zero+prefix), option("001a", hours+prefix)
	s, st := known(t, nil), stationOf(1)
	registering := station{mac: st.mac, src: netip.MustParseAddr("2001:db8:1:1::77")}
	mine := option("0005", "20010db8000100010000000000000077 00000708 00000e10")
	for _, tt := range []struct {
		name, message, want string
		from                station
	}{
		{"SOLICIT", "01 000001" + client + iaNA(zero) + iaPD(zero),
			"02 000001" + server + client + "0007 0001 ff" + iaNA(timesA+as) + iaPD(timesP+pdAs), st},
		{"SOLICIT with rapid commit", "01 000002" + client + "000e 0000" + iaNA(zero),
			"07 000002" + server + client + "000e 0000" + iaNA(timesA+as), st},
		{"REQUEST", "03 000003" + client + server + iaNA(zero+at) + iaPD(zero+pdAt),
			"07 000003" + server + client + iaNA(timesA+as) + iaPD(timesP+pdAs), st},
		{"CONFIRM", "04 000004" + client + iaNA(zero+at), "07 000004" + server + client + success, st},
		{"RENEW", "05 000005" + client + server + iaNA(zero+at), "07 000005" + server + client + iaNA(timesA+as), st},
		{"REBIND", "06 000006" + client + iaPD(zero+pdAt), "07 000006" + server + client + iaPD(timesP+pdAs), st},
		{"RELEASE", "08 000007" + client + server + iaPD(zero+pdAt), "07 000007" + server + client + success, st},
		{"DECLINE", "09 000008" + client + server + iaNA(zero+at), "07 000008" + server + client + success, st},
		{"INFORMATION-REQUEST", "0b 000009" + client + "0006 0002 0020",
			"07 000009" + server + client + "0020 0004 00000e10", st},
		{"ADDR-REG-INFORM", "24 00000a" + client + mine, "25 00000a" + mine, registering},
		{"CONFIRM without addresses", "04 00000b" + client + iaNA(zero), "", st},
		{"RELAY-FORW", "0c 00000c", "", st},
		{"an option that is cut off", "0b 00000d" + client + "0006 0002 0020 0001 00",
			"07 00000d" + server + client + "0020 0004 00000e10", st},
	} {
		if got, want := exchange(t, s, tt.from, unhex(t, tt.message)), unhex(t, tt.want); string(got) != string(want) {
			t.Errorf("%s:\ngot  %x\nwant %x", tt.name, got, want)
		}
	}
}

// option returns an option with its length, in hexadecimal.
func option(code, inside string) string {
	inside = strings.Join(strings.Fields(inside), "")
	return code + hex.EncodeToString([]byte{byte(len(inside) / 2 >> 8), byte(len(inside) / 2)}) + inside
}
