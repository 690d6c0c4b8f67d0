package radius

import (
	"testing"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc2869"
	"layeh.com/radius/rfc3576"
)

// TestDynamicComparesAll: a request that names a session with another value of any attribute changes nothing.
func TestDynamicComparesAll(t *testing.T) {
	d, o := newDynamic(t)
	d.cfg.NASPortID, d.cfg.CalledStationID, o.s.Class = "lan0", "AA-BB", [][]byte{[]byte("gold"), []byte("7")}
	ask := func(fill func(builder)) *radius.Packet {
		p, err := radius.Parse(d.answer(packet(t, fill)), []byte(testSecret))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, tt := range map[string]struct {
		fill func(builder)
		same bool
	}{
		"all of the session": {func(p builder) {
			p.text(rfc2869.NASPortID_Type, "lan0")
			p.text(rfc2865.CalledStationID_Type, "AA-BB")
			p.number(rfc2865.NASPortType_Type, uint32(rfc2865.NASPortType_Value_Wireless80211))
			p.text(rfc2865.Class_Type, "gold")
			p.text(rfc2865.Class_Type, "7")
		}, true},
		"NAS-Port-Id":       {func(p builder) { p.text(rfc2869.NASPortID_Type, "lan1") }, false},
		"Called-Station-Id": {func(p builder) { p.text(rfc2865.CalledStationID_Type, "AA-BC") }, false},
		"NAS-Port-Type":     {func(p builder) { p.number(rfc2865.NASPortType_Type, uint32(rfc2865.NASPortType_Value_Ethernet)) }, false},
		"Class":             {func(p builder) { p.text(rfc2865.Class_Type, "silver") }, false},
		"one Class of two":  {func(p builder) { p.text(rfc2865.Class_Type, "7") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := o.kicked
			answer := ask(func(p builder) {
				p.text(rfc2866.AcctSessionID_Type, "5f3c")
				tt.fill(p)
			})
			cause, _ := number(answer, rfc3576.ErrorCause_Type)
			if (o.kicked > before) != tt.same || !tt.same && rfc3576.ErrorCause(cause) != rfc3576.ErrorCause_Value_SessionContextNotFound {
				t.Errorf("%d ended, answered by %v", o.kicked-before, answer)
			}
		})
	}
}

// packet is a Disconnect-Request.
func packet(t *testing.T, fill func(builder)) *radius.Packet {
	t.Helper()
	p := builder{radius.New(radius.CodeDisconnectRequest, []byte(testSecret))}
	fill(p)
	return p.Packet
}

// TestDynamicInterim: 0 has the default interval, as at a login, and less than the least one the least.
func TestDynamicInterim(t *testing.T) {
	d, o := newDynamic(t)
	d.cfg.InterimDefault = 5 * time.Minute
	for i, tt := range []struct {
		every uint32
		want  time.Duration
	}{{900, 15 * time.Minute}, {0, 5 * time.Minute}, {1, time.Minute}} {
		d.receive(dynamicServer, d.request(t, radius.CodeCoARequest, byte(i), testSecret, func(p builder) {
			p.text(rfc2866.AcctSessionID_Type, "5f3c")
			p.number(rfc2869.AcctInterimInterval_Type, tt.every)
		}), time.Now())
		if o.changed != i+1 || o.s.Limits.Interim != tt.want {
			t.Errorf("%d s: %v, %d changes", tt.every, o.s.Limits.Interim, o.changed)
		}
	}
}
