// Tests of parsers of files in /proc.

package machine

import "testing"

func TestParseNeighbourStat(t *testing.T) {
	// Linux 6.18 with two CPUs, after a table that was too small.
	const text = `entries  allocs   destroys hash_grows lookups  hits     res_failed rcv_probes_mcast rcv_probes_ucast periodic_gc_runs forced_gc_runs unresolved_discards table_fulls
00000001 000271c5 0000981d 00000005   00565f6f 000278d3 00000018   00000000         00000000         00000910         00000949       00004424            0000092d
00000001 00007e1a 00025005 00000003   00029b29 00016f2b 00000008   00000000         00000000         00000000         000004e7       00002179            000004c6
`
	for name, tt := range map[string]struct {
		text string
		want int64
		bad  bool
	}{
		"real":        {text, 0x92d + 0x4c6, false},
		"not counted": {"entries allocs\n1 2\n", 0, false},
		"cut short":   {text[:len(text)-20], 0, true},
		"empty":       {"", 0, false},
	} {
		got, err := parseNeighbourStat(tt.text)
		if (err != nil) != tt.bad || err == nil && got != tt.want {
			t.Errorf("%s: %d, %v; want %d", name, got, err, tt.want)
		}
	}
}

func TestParseMeminfo(t *testing.T) {
	m, err := parseMeminfo(
		"MemTotal:  24000 kB\nMemFree:  10000 kB\nMemAvailable: 20000 kB\nBuffers: 100 kB\nCached: 3000 kB\nShmem: 500 " +
			"kB\nSlab: 900 kB\nHugePages_Total:       0\n")
	// The 500 KiB in memory file systems are among the cached, and are taken.
	if want := (Memory{Total: 24000, Available: 20000, Taken: 24000 - 10000 - 100 - 3000 + 500}); err != nil || m != want {
		t.Errorf("memory %+v, %v, want %+v", m, err, want)
	}
	for _, bad := range []string{"", "nothing\n", "MemTotal: many kB\n"} {
		if m, err := parseMeminfo(bad); err == nil {
			t.Errorf("%q: %+v, no error", bad, m)
		}
	}
}
