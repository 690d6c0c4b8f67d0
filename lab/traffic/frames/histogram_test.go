package frames

import (
	"slices"
	"strings"
	"testing"
)

// TestHistogramFromCSV: each of three texts is the mix "imix" (7:4:1). Errors name file, line and value; want has parts
// of the error.
func TestHistogramFromCSV(t *testing.T) {
	for _, text := range []string{
		"bytes,weight\n60,7\n590,4\n1514,1\n",
		"\ufeffBytes,Weight\r\n60,7\r\n590,4\r\n1514,1\r\n",
		"# 7:4:1\r\n 590, 0.04\r\n\r\n60,0.05\r\n1514,0.01\r\n60,2e-2\r\n70,0\r\n",
	} {
		s, err := ReadHistogram(strings.NewReader(text), "mix.csv")
		if err != nil || !slices.Equal(s.Shares(), named(t, "imix").Shares()) {
			t.Errorf("%q: %v, %v", text, s.Shares(), err)
		}
	}
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"", []string{"weight"}},
		{"bytes,weight\n", []string{"weight"}},
		{"60,1\n61\n", []string{":2:", "bytes,weight"}},
		{"60,1,2\n", []string{":1:", "bytes,weight"}},
		{"bytes,weight\n60,1\nlong,1\n", []string{":3:", "long"}},
		{"60,many\n", []string{":1:", "many"}},
		{"60,-0.5\n", []string{":1:", "-0.5"}},
		{"60,NaN\n", []string{":1:", "NaN"}},
		{"60,Inf\n", []string{":1:", "Inf"}},
		{"# shorter than Ethernet's least\n40,1\n", []string{":2:", "40 bytes", "60"}},
		{"60,1\n9015,1\n", []string{":2:", "9015", "9014"}},
		{"60,\"1\n", []string{":1:"}},
	} {
		_, err := ReadHistogram(strings.NewReader(tt.text), "mix.csv")
		for _, w := range append(tt.want, "mix.csv") {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v, want an error that says %q", tt.text, err, w)
			}
		}
	}
}

// FuzzReadHistogram: frames can be planned with any mix that was read without an error.
func FuzzReadHistogram(f *testing.F) {
	for _, seed := range []string{"bytes,weight\n60,1\n", "60,1e300\n61,1e-300\n", "\"60\",0x1p4", "60,1\n60", ",\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ReadHistogram(strings.NewReader(text), "x")
		if err != nil {
			return
		}
		p, err := NewPlan(Config{Sizes: s, Schedule: Schedule{Mbps: 1000}, Count: 100})
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, p)
	})
}

// checkPlan takes the 100 frames of a plan: their sizes must be legal, and none may be due before the one ahead of it.
func checkPlan(t *testing.T, p *Plan) {
	t.Helper()
	batch := make([]Frame, 101)
	if n := p.Fill(batch); n != 100 {
		t.Fatalf("100 frames were asked for, %d came", n)
	}
	last := int64(0)
	for i, f := range batch[:100] {
		if f.Bytes < MinBytes || int(f.Bytes) > p.MaxBytes() || p.MaxBytes() > MaxBytes || f.Due < last {
			t.Fatalf("frame %d after %d ns: %+v; the longest has %d bytes", i, last, f, p.MaxBytes())
		}
		last = f.Due
	}
}
