package profile

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// approxEqual has cmp.Diff accept small differences between floating-point numbers.
var approxEqual = cmpopts.EquateApprox(0, 1e-9)

// TestSideSharesOutExactTime: each account's time is split evenly over its own
// samples; children are found by their ancestors; what lies outside of the window
// or belongs to others does not count.
func TestSideSharesOutExactTime(t *testing.T) {
	rec := parseFixture(t)
	side := rec.Side(Router{
		FromNs: 13534e9, ToNs: 13535_017_513_206, Seconds: 1, Packets: 1000,
		Threads:   map[int]string{21296: AccountWAN, 21286: AccountLAN},
		Processes: map[int]string{21353: "opennds"},
		Ns:        map[string]int64{AccountWAN: 2e6, AccountLAN: 3e6, "opennds": 1.5e6, "idle": 0, "unseen": 7000},
	})
	want := []Account{
		{AccountLAN, 3e6, 1, 500250}, {AccountWAN, 2e6, 1, 500250}, {"opennds", 1.5e6, 3, 1500750}, {"unseen", 7000, 0, 0},
	}
	if diff := cmp.Diff(want, side.Accounts); diff != "" {
		t.Errorf("accounts (-want +got):\n%s", diff)
	}
	if got := side.NsPerPacket(); math.Abs(got-6507) > 1e-6 {
		t.Errorf("%v ns per packet in all, want the exact 6507", got)
	}
	leaves := map[string]float64{}
	for _, s := range side.Stacks {
		leaves[s.Frames[0].Func+" > "+s.Frames[len(s.Frames)-1].String()] += s.NsPerPacket
	}
	wantLeaves := map[string]float64{
		"napi/lan > finish_task_switch.isra.0 [kernel]":                3000,
		"napi/wan > fib_lookup_good_nhc [kernel]":                      2000,
		"opennds > filp_flush [kernel]":                                500,
		"opennds > __raw_callee_save___pv_queued_spin_unlock [kernel]": 500,
		"opennds > _IO_feof [libc.so.6]":                               500,
		"unseen > [no sample taken] [?]":                               7,
	}
	if diff := cmp.Diff(wantLeaves, leaves, approxEqual); diff != "" {
		t.Errorf("time by function (-want +got):\n%s", diff)
	}
	var all Account
	for _, a := range side.Accounts {
		all.Ns, all.SampledNs = all.Ns+a.Ns, all.SampledNs+a.SampledNs
	}
	if got := all.Coverage(); math.Abs(got-5*500250/6507e3) > 1e-9 {
		t.Errorf("coverage %v", got)
	}
}

// TestProcessesThatStartedEachOther: process ids are used again, so the records may claim that
// two processes started each other.
func TestProcessesThatStartedEachOther(t *testing.T) {
	rec := &Recording{Parents: map[int]int{1: 2, 2: 1}, Samples: []Sample{{PID: 1, TID: 1}}}
	if side := rec.Side(Router{ToNs: 1, Packets: 1, Ns: map[string]int64{"x": 5}}); side.Accounts[0].Samples != 0 {
		t.Errorf("a stranger's sample counts: %+v", side)
	}
}

// profileOf makes a profile of the stacks of the device and of the clean router, for 1000 packets. Each account has so
// many samples.
func profileOf(dut, clean []Stack, samples int) Profile {
	side := func(stacks []Stack) Side {
		s := Side{Packets: 1000, Stacks: stacks}
		ns := map[string]int64{}
		for _, st := range stacks {
			ns[st.Frames[0].Func] += int64(st.NsPerPacket * 1000)
		}
		for name, v := range ns {
			s.Accounts = append(s.Accounts, Account{Name: name, Ns: v, Samples: samples})
		}
		return s
	}
	return Profile{DUT: side(dut), Clean: side(clean)}
}

// stack makes a stack that takes ns per packet. names are its frames, as String writes them, the account first.
func stack(ns float64, names ...string) Stack {
	s := Stack{NsPerPacket: ns}
	for _, n := range names {
		s.Frames = append(s.Frames, parseFrame(n))
	}
	return s
}

// example is a profile with two accounts, napi/lan and a daemon that only the device has.
var example = profileOf(
	[]Stack{
		stack(100, "napi/lan", "poll [kernel]", "forward [kernel]"),
		stack(60, "napi/lan", "poll [kernel]", "forward [kernel]", "hook [kernel]"),
		stack(40, "daemon", "main [daemon]", "main [daemon]", "forward [kernel]"),
	},
	[]Stack{
		stack(110, "napi/lan", "poll [kernel]", "forward [kernel]"),
		stack(20, "napi/lan", "poll [kernel]", "hook [kernel]"),
		stack(10, "napi/lan", "poll [kernel]"),
	}, 100)

func TestExplainAddsUp(t *testing.T) {
	e := Explain(example)
	type row struct{ Func, Self, Total any }
	var got []row
	for _, r := range e.Rows {
		got = append(got, row{r.Func, r.Self.Difference(), r.Total.Difference()})
	}
	want := []row{{"hook", 40.0, 40.0}, {"forward", 30.0, 90.0}, {"poll", -10.0, 20.0}}
	if diff := cmp.Diff(want, got, approxEqual); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if e.Sum.DUT != 200 || e.Sum.Clean != 140 {
		t.Errorf("sum %+v, want 200 and 140", e.Sum)
	}
	rest, n := e.Rest(1)
	if n != 2 || math.Abs(rest.Difference()-20) > 1e-9 {
		t.Errorf("rest %+v of %d rows", rest, n)
	}
	// 60 of 160 ns and 20 of 140 ns by 100 samples each.
	p, q := 60.0/160, 20.0/140
	sd := math.Sqrt(160*160*p*(1-p)/100 + 140*140*q*(1-q)/100)
	if m := e.Rows[0].Self.Margin(); math.Abs(m-1.96*sd) > 1e-9 {
		t.Errorf("margin %v, want %v", m, 1.96*sd)
	}
}

func TestTreeMergesBothRouters(t *testing.T) {
	root := Tree(example)
	if root.DUT != 200 || root.Clean != 140 || len(root.Children) != 2 {
		t.Fatalf("root %+v", root)
	}
	lan := root.Children[1]
	poll := lan.Children[0]
	if lan.Func != AccountLAN || lan.DUT != 160 || lan.Clean != 140 || lan.Margin() != 0 {
		t.Errorf("%s: %v against %v ± %v; the whole account is known exactly", lan.Func, lan.DUT, lan.Clean, lan.Margin())
	}
	if len(poll.Children) != 2 || poll.Children[0].Func != "forward" || poll.Children[0].DUT != 160 ||
		poll.Children[0].Clean != 110 {
		t.Errorf("below poll: %+v", poll.Children)
	}
}
