package radius

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
	"time"

	"layeh.com/radius"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// vendorAttr is an attribute of a vendor.
type vendorAttr struct {
	vendor uint32
	kind   byte
	value  any // uint32 or string
}

// TestLimitsOfVendors: each vendor's attributes limit a login, and change a session likewise. Where two limit the same
// the lower value holds, and 0 does not limit. Long: a table of packets.
func TestLimitsOfVendors(t *testing.T) {
	rate := func(text string) vendorAttr { return vendorAttr{vendorMikrotik, mikrotikRate, text} }
	rates := func(up, down uint64) session.Limits { return session.Limits{UpBps: up, DownBps: down} }
	for _, tt := range []struct {
		name string
		all  []vendorAttr
		swap bool
		want session.Limits
	}{
		{"MikroTik's rates", []vendorAttr{rate("512k/4M")}, false, rates(512_000, 4_000_000)},
		{"one rate is both", []vendorAttr{rate("1G")}, false, rates(1_000_000_000, 1_000_000_000)},
		{"bits a second", []vendorAttr{rate("64000/128000")}, false, rates(64_000, 128_000)},
		{"with bursts, priority and minimum", []vendorAttr{rate("1M/2M 2M/4M 512k/1M 10/10 8 256k/256k")}, false,
			rates(1_000_000, 2_000_000)},
		{"none in one direction", []vendorAttr{rate("0/2M")}, false, rates(0, 2_000_000)},
		{"ChilliSpot's rates", []vendorAttr{{vendorChilliSpot, chilliMaxUp, uint32(512)},
			{vendorChilliSpot, chilliMaxDown, uint32(4000)}}, false, rates(512_000, 4_000_000)},
		{"the lowest of three", []vendorAttr{rate("3M/3M"), {vendorWISPr, wisprMaxUp, uint32(2_000_000)},
			{vendorChilliSpot, chilliMaxUp, uint32(1000)}, {vendorWISPr, wisprMaxDown, uint32(9_000_000)}}, false,
			rates(1_000_000, 3_000_000)},
		{"0 beside a limit", []vendorAttr{{vendorWISPr, wisprMaxUp, uint32(0)}, rate("3M/0"),
			{vendorWISPr, wisprMaxDown, uint32(7)}}, false, rates(3_000_000, 7)},
		{"MikroTik's quotas", []vendorAttr{{vendorMikrotik, mikrotikRecv, uint32(1000)},
			{vendorMikrotik, mikrotikXmit, uint32(2000)}, {vendorMikrotik, mikrotikTotal, uint32(5)},
			{vendorMikrotik, mikrotikTotalHigh, uint32(1)}}, false,
			session.Limits{UpBytes: 1000, DownBytes: 2000, TotalBytes: 1<<32 + 5}},
		{"of a server that counts from the other side", []vendorAttr{{vendorMikrotik, mikrotikRecv, uint32(1000)},
			{vendorMikrotik, mikrotikXmitHigh, uint32(1)}}, true, session.Limits{UpBytes: 1 << 32, DownBytes: 1000}},
		{"the lower quota", []vendorAttr{{vendorMikrotik, mikrotikTotalHigh, uint32(1)},
			{vendorChilliSpot, chilliMaxTotal, uint32(900)}}, false, session.Limits{TotalBytes: 900}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := (&Config{SwapOctets: tt.swap}).limits(packetOf(t, tt.all))
			if err != nil {
				t.Fatal(err)
			}
			got, given, err := l.ofLogin(time.Now())
			if err != nil || got != tt.want || reflect.ValueOf(given).IsZero() {
				t.Errorf("a login has %+v, %+v, %v", got, given, err)
			}
			changed := session.Limits{IdleTimeout: time.Hour, Interim: time.Minute}
			l.change(time.Now())(&changed)
			tt.want.IdleTimeout, tt.want.Interim = time.Hour, time.Minute
			if changed != tt.want {
				t.Errorf("a change makes it %+v", changed)
			}
		})
	}
}

// TestLimitsByFreeRADIUS: the attributes of MikroTik as FreeRADIUS's dictionary has them.
func TestLimitsByFreeRADIUS(t *testing.T) {
	c := newClient(t, Config{Servers: []Server{startFreeRADIUS(t).server()}})
	login, err := c.Authenticate(t.Context(), session.Credentials{User: "routed", Password: "correct horse", Key: testKey})
	want := session.Limits{UpBps: 512_000, DownBps: 4_000_000, UpBytes: 1000, DownBytes: 1 << 32, TotalBytes: 2<<32 + 5}
	if err != nil || login.Limits != want {
		t.Errorf("%+v, %v", login.Limits, err)
	}
}

// TestWrongRates: rates that cannot be read admit nobody, and change nothing.
func TestWrongRates(t *testing.T) {
	for _, text := range []string{" ", "fast", "1M/", "/1M", "-1M/1M", "1.5M/2M", "1MM/1M", "99999999999G/1M"} {
		p := packetOf(t, []vendorAttr{{vendorMikrotik, mikrotikRate, text}})
		if _, err := (&Config{}).limits(p); err == nil || !strings.Contains(err.Error(), "Mikrotik-Rate-Limit") {
			t.Errorf("%q: %v", text, err)
		}
		d, _ := newDynamic(t)
		if _, cause := d.parseChange(p); cause == 0 {
			t.Errorf("%q: a CoA-Request is carried out", text)
		}
	}
}

// packetOf returns a CoA-Request with these attributes.
func packetOf(t *testing.T, all []vendorAttr) *radius.Packet {
	t.Helper()
	p := builder{radius.New(radius.CodeCoARequest, []byte(testSecret))}
	for _, a := range all {
		switch value := a.value.(type) {
		case uint32:
			p.vendor(a.vendor, a.kind, binary.BigEndian.AppendUint32(nil, value))
		case string:
			p.vendor(a.vendor, a.kind, []byte(value))
		}
	}
	return p.Packet
}
