package radius

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc3576"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/logtest"
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
		{"connections", []vendorAttr{{vendorHuawei, huaweiConnections, uint32(300)}}, false,
			session.Limits{Connections: 300}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := (&Config{SwapOctets: tt.swap, Connections: true}).limits(packetOf(t, tt.all))
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

// TestProfiles: Filter-Id gives the limits of a profile, and the packet's own limits replace them. Among other names
// the profile is found. A name that is no profile is refused where there are profiles, and ignored without them.
// Long: a table of packets.
func TestProfiles(t *testing.T) {
	gold := Profile{Sessions: 5, Limits: session.Limits{UpBps: 50, DownBps: 200, TotalBytes: 9, SessionTimeout: time.Hour,
		Connections: 100}}
	own := gold.Limits
	own.UpBps, own.TotalBytes = 7, 0
	profiles := map[string]Profile{"gold": gold}
	for _, tt := range []struct {
		name     string
		filters  []string
		own      bool // with limits of its own
		profiles map[string]Profile
		want     session.Limits
		sessions int
		wrong    bool
	}{
		{"a profile", []string{"gold"}, false, profiles, gold.Limits, 5, false},
		{"beside a name for others", []string{"acl-7", "gold"}, false, profiles, gold.Limits, 5, false},
		{"with limits of its own", []string{"gold"}, true, profiles, own, 1, false},
		{"none of the profiles", []string{"silver"}, false, profiles, session.Limits{}, 0, true},
		{"there are no profiles", []string{"gold"}, false, nil, session.Limits{}, 0, false},
		{"it names none", nil, false, profiles, session.Limits{}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := builder{radius.New(radius.CodeCoARequest, []byte(testSecret))}
			for _, name := range tt.filters {
				p.text(rfc2865.FilterID_Type, name)
			}
			if tt.own {
				p.number(rfc2865.PortLimit_Type, 1)
				p.vendor(vendorWISPr, wisprMaxUp, []byte{0, 0, 0, 7})
				p.vendor(vendorChilliSpot, chilliMaxTotal, []byte{0, 0, 0, 0})
			}
			cfg := &Config{Profiles: tt.profiles}
			l, err := cfg.limits(p.Packet)
			if tt.wrong {
				if err == nil || !strings.Contains(err.Error(), `"silver", is not configured: add a table [[limits.profile]]`) {
					t.Errorf("%v", err)
				}
				return
			}
			got, _, bad := l.ofLogin(time.Now())
			if err != nil || bad != nil || got != tt.want || l.sessions != tt.sessions {
				t.Errorf("%+v, %d sessions, %v, %v", got, l.sessions, err, bad)
			}
		})
	}
}

// TestProfileByCoA: a CoA-Request gives a session the limits of a profile, and those that the profile has not stay. An
// unknown profile changes nothing, and without profiles the attribute is not understood.
func TestProfileByCoA(t *testing.T) {
	d, o := newDynamic(t)
	ask := func(name string) rfc3576.ErrorCause {
		p := builder{radius.New(radius.CodeCoARequest, []byte(testSecret))}
		p.text(rfc2866.AcctSessionID_Type, o.s.ID)
		p.text(rfc2865.FilterID_Type, name)
		_, cause := d.carryOut(p.Packet)
		return cause
	}
	if cause := ask("gold"); cause != rfc3576.ErrorCause_Value_UnsupportedAttribute || o.changed != 0 {
		t.Errorf("without profiles: %d, %d changes", cause, o.changed)
	}
	d.cfg.Profiles = map[string]Profile{"gold": {Limits: session.Limits{DownBps: 200}}}
	before := o.s.Limits
	if cause := ask("silver"); cause == 0 || o.changed != 0 || o.s.Limits != before {
		t.Errorf("an unknown profile: %d, %d changes", cause, o.changed)
	}
	before.DownBps = 200
	if cause := ask("gold"); cause != 0 || o.changed != 1 || o.s.Limits != before {
		t.Errorf("a profile: %d, %d changes, %+v", cause, o.changed, o.s.Limits)
	}
}

// TestConnectionsByCoA: a CoA-Request changes the limit of connections where they are counted. Elsewhere it is not
// understood.
func TestConnectionsByCoA(t *testing.T) {
	d, o := newDynamic(t)
	ask := func() rfc3576.ErrorCause {
		p := builder{radius.New(radius.CodeCoARequest, []byte(testSecret))}
		p.text(rfc2866.AcctSessionID_Type, o.s.ID)
		p.vendor(vendorHuawei, huaweiConnections, []byte{0, 0, 0, 7})
		_, cause := d.carryOut(p.Packet)
		return cause
	}
	if cause := ask(); cause != rfc3576.ErrorCause_Value_UnsupportedAttribute || o.changed != 0 {
		t.Errorf("where nothing is counted: %d, %d changes", cause, o.changed)
	}
	d.cfg.Connections = true
	if cause := ask(); cause != 0 || o.changed != 1 || o.s.Limits.Connections != 7 {
		t.Errorf("%d, %d changes, %+v", cause, o.changed, o.s.Limits)
	}
}

// TestUncounted: where connections are not counted the log says so once, if a server limits them.
func TestUncounted(t *testing.T) {
	var logs logtest.Log
	c := newClient(t, Config{Servers: []Server{{Address: loopbackPort(), Secret: testSecret}}, Log: logs.Logger()})
	for i, most := range []byte{0, 7, 7} {
		p := builder{radius.New(radius.CodeAccessAccept, []byte(testSecret))}
		p.vendor(vendorHuawei, huaweiConnections, []byte{0, 0, 0, most})
		login, err := c.decide(session.Credentials{User: "ann", Key: testKey}, p.Packet)
		if n := logs.Count("attribute=Huawei-Layer4-Session-Limit"); err != nil || login.Limits.Connections != 0 ||
			n != min(i, 1) {
			t.Errorf("login %d, with %d: %+v, %v, said %d times", i, most, login.Limits, err, n)
		}
	}
}

// TestLimitsByFreeRADIUS: the attributes of MikroTik as FreeRADIUS's dictionary has them, and a profile.
func TestLimitsByFreeRADIUS(t *testing.T) {
	c := newClient(t, Config{Servers: []Server{startFreeRADIUS(t).server()},
		Profiles: map[string]Profile{"gold": {Sessions: 3, Limits: session.Limits{UpBps: 1, IdleTimeout: time.Hour}}}})
	login, err := c.Authenticate(t.Context(), session.Credentials{User: "routed", Password: "correct horse", Key: testKey})
	want := session.Limits{UpBps: 512_000, DownBps: 4_000_000, UpBytes: 1000, DownBytes: 1 << 32, TotalBytes: 2<<32 + 5,
		IdleTimeout: time.Hour}
	if err != nil || login.Limits != want || login.Sessions != 3 {
		t.Errorf("%+v, %d sessions, %v", login.Limits, login.Sessions, err)
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
