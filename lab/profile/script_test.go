package profile

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// noNames stands for Symbols.Name, and knows no function of any file.
func noNames(string, uint64) string { return "" }

// parseFixture reads a recording from output of perf script on a real machine (perf 6.1).
func parseFixture(t testing.TB) *Recording {
	t.Helper()
	f, err := os.Open("testdata/perf-6.1.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rec, err := ParseScript(f, noNames)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// names lists a stack's frames, innermost first.
func (rec *Recording) names(s Sample) []string {
	var out []string
	for _, f := range s.Stack {
		out = append(out, rec.Frames[f].String())
	}
	return out
}

func TestParseScriptOfRealOutput(t *testing.T) {
	rec := parseFixture(t)
	if len(rec.Samples) != 6 {
		t.Fatalf("%d samples, want 6", len(rec.Samples))
	}
	s := rec.Samples[2]
	if s.PID != 21353 || s.TID != 22051 || s.TimeNs != 13535017006519 || s.PeriodNs != 500250 {
		t.Errorf("sample %+v", s)
	}
	want := []string{"_IO_feof [libc.so.6]", "[unknown] [opennds]", "[unknown] [?]"}
	if diff := cmp.Diff(want, rec.names(s)); diff != "" {
		t.Errorf("stack (-want +got):\n%s", diff)
	}
	if last := rec.names(rec.Samples[3]); last[0] != "finish_task_switch.isra.0 [kernel]" ||
		last[6] != "ret_from_fork_asm [kernel]" || len(last) != 7 {
		t.Errorf("kernel stack %q", last)
	}
	if got := []int{rec.Parents[25426], rec.Parents[25427]}; got[0] != 21353 || got[1] != 25426 {
		t.Errorf("parents %v", got)
	}
	asked := map[string]int{}
	f, err := os.Open("testdata/perf-6.1.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := ParseScript(f, func(path string, _ uint64) string { asked[path]++; return "" }); err != nil ||
		asked["/usr/bin/opennds"]+asked["/usr/bin/bash"] != 3 || len(asked) != 2 {
		t.Errorf("%v; without a name are places of %v, want three of opennds and bash", err, asked)
	}
	if _, thread := rec.Parents[22052]; thread {
		t.Error("a thread has a parent of its own")
	}
}

func TestParseScriptLines(t *testing.T) {
	const head = "a b 1/2 5.000000007:  250 \n"
	for _, tt := range []struct{ name, in, want string }{
		{"blanks in the command", head + "\tff f ([kernel.kallsyms])\n", "f [kernel]"},
		{"digits in the command", "x 3/4 1/2 5.000000007: 250\n\tff f (/lib/l.so)\n", "f [l.so]"},
		{"C++ name", head + "\tff std::f(int, char (&) [3]) (/lib/l.so)\n", "std::f(int, char (&) (3]) [l.so]"},
		{"Go name", head + "\tff example.org/a/b.(*T[go.shape.*example.org/c.U]).F (/usr/bin/x)\n",
			"b.(*T[go.shape.*example.org/c.U]).F [x]"},
		{"Go function", head + "\tff internal/runtime/syscall/linux.Syscall6 (/usr/bin/x)\n", "linux.Syscall6 [x]"},
		{"C++ operator", head + "\tff std::operator/(int) (/lib/l.so)\n", "std::operator/(int) [l.so]"},
		{"semicolon", head + "\tff f<';'> (/lib/a;b.so)\n", "f<':'> [a:b.so]"},
		{"deleted file", head + "\tff f (/memfd:x (deleted))\n", "f [memfd:x]"},
		{"kernel module", head + "\tff f ([nf_tables])\n", "f [kernel:nf_tables]"},
		{"kernel module's file", head + "\tff f (/lib/modules/6.1/veth.ko.xz)\n", "f [kernel:veth]"},
		{"eBPF program", head + "\tff bpf_prog_6deef7357e7b4530_f (bpf_prog_6deef7357e7b4530_f)\n",
			"bpf_prog_6deef7357e7b4530_f [kernel:bpf]"},
		{"vDSO", head + "\tff clock_gettime ([vdso])\n", "clock_gettime [vdso]"},
		{"no symbol", head + "\tff [unknown] (/no/such)\n", "[unknown] [such]"},
		{"nothing known", head + "\tff [unknown] ([unknown])\n", "[unknown] [?]"},
		{"no stack", head, ""},
	} {
		rec, err := ParseScript(strings.NewReader(tt.in+"\n"), noNames)
		if err != nil || len(rec.Samples) != 1 {
			t.Errorf("%s: %v, %+v", tt.name, err, rec)
			continue
		}
		s := rec.Samples[0]
		if got := strings.Join(rec.names(s), ","); got != tt.want || s.PID != 1 || s.TID != 2 || s.TimeNs != 5e9+7 ||
			s.PeriodNs != 250 {
			t.Errorf("%s: got %q of %+v, want %q", tt.name, got, s, tt.want)
		}
	}
}

func TestParseScriptRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, in := range []string{
		"nonsense\n", "a 1/2 5.5: 250\n", "a 1 5.000000000: 250\n", "a x/2 5.000000000: 250\n", "a 1/2 5.000000000: -1\n",
		"a 1/2 5.000000000: 250\n\tzz f (x)\n", "a 1/2 5.000000000: 250\n\tff f\n", "\tff f (x)\n",
		"a 1/1 5.000000000: PERF_RECORD_FORK(x:1):(2:2)\n",
	} {
		if _, err := ParseScript(strings.NewReader("b 1/1 4.000000000: 1\n\n"+in), noNames); err == nil ||
			!strings.Contains(err.Error(), "line ") {
			t.Errorf("%q: %v, want an error with the line", in, err)
		}
	}
}

// FuzzParseScript: any text that ParseScript accepts gives a recording whose time can be shared out, written and read
// again. Nothing of the time gets lost.
func FuzzParseScript(f *testing.F) {
	fixture, err := os.ReadFile("testdata/perf-6.1.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(fixture)
	f.Add([]byte("a b 1/1 5.000000007: 250\n\tff std::f(a) [3] ([x y])\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		rec, err := ParseScript(bytes.NewReader(in), noNames)
		if err != nil {
			return
		}
		r := Router{ToNs: 1 << 62, Packets: 3, Threads: map[int]string{}, Processes: map[int]string{},
			Ns: map[string]int64{"x": 6e6}}
		for _, s := range rec.Samples {
			r.Processes[s.PID] = "x"
		}
		side := rec.Side(r)
		if got := side.NsPerPacket(); got < 2e6*0.999999 || got > 2e6*1.000001 {
			t.Errorf("%v ns per packet, want 2e6", got)
		}
		var b bytes.Buffer
		if err := WriteFolded(&b, side.Stacks); err != nil {
			t.Fatal(err)
		}
		again, err := ReadFolded(&b)
		if err != nil || len(again) != len(side.Stacks) {
			t.Fatalf("read again: %v, %d of %d stacks", err, len(again), len(side.Stacks))
		}
		for i, s := range side.Stacks {
			if !cmp.Equal(s.Frames, again[i].Frames) {
				t.Errorf("frames %q became %q", s.Frames, again[i].Frames)
			}
		}
	})
}
