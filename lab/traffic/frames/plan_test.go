package frames

import (
	"slices"
	"testing"
	"time"
)

// allFrames makes a plan and reads it to its end, in batches of several lengths.
func allFrames(t testing.TB, cfg Config) []Frame {
	t.Helper()
	p, err := NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var list []Frame
	for i := 0; ; i++ {
		batch := make([]Frame, []int{1, 7, 64, 1000}[i%4])
		n := p.Fill(batch)
		list = append(list, batch[:n]...)
		if n < len(batch) {
			if p.Fill(batch) != 0 {
				t.Fatal("a plan went on after its end")
			}
			return list
		}
	}
}

// named returns a mix of sizes by its name ("imix"), or one size by its bytes ("60").
func named(t testing.TB, name string) Sizes {
	t.Helper()
	s, err := Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPlanEndsByCountAndByTime: a plan ends after Count frames or before the time For, whichever comes first.
func TestPlanEndsByCountAndByTime(t *testing.T) {
	sizes := named(t, "imix")
	for _, tt := range []struct {
		name  string
		count int64
		time  time.Duration
		want  int
	}{
		{"by its count", 1234, 0, 1234},
		{"by its time", 0, 10 * time.Millisecond, 100}, // due at 0 to 9.9 ms
		{"by the first of both", 50, 10 * time.Millisecond, 50},
		{"by the first of both", 5000, 10 * time.Millisecond, 100},
	} {
		frames := allFrames(
			t, Config{Sizes: sizes, Schedule: Schedule{PacketsPerSecond: 10_000}, Count: tt.count, For: tt.time})
		if len(frames) != tt.want {
			t.Errorf("a plan that ends %s has %d frames, want %d", tt.name, len(frames), tt.want)
		}
	}
}

// TestStreamsTakeTurns: frames go to the streams one after the other.
func TestStreamsTakeTurns(t *testing.T) {
	frames := allFrames(t, Config{Sizes: named(t, "60"), Schedule: Schedule{AtOnce: true}, Streams: 3, Count: 3000})
	for i, f := range frames {
		if int(f.Stream) != i%3 {
			t.Fatalf("frame %d belongs to stream %d", i, f.Stream)
		}
	}
}

// TestSameSeedSameSequence: plans with the same seed are equal, and plans with two seeds are not.
func TestSameSeedSameSequence(t *testing.T) {
	for _, s := range []Schedule{{PacketsPerSecond: 1e5}, {Mbps: 100, Poisson: true}} {
		cfg := Config{Sizes: named(t, "study5"), Schedule: s, Count: 5000, Seed: 7}
		a, b := allFrames(t, cfg), allFrames(t, cfg)
		if !slices.Equal(a, b) {
			t.Error("two plans of one seed differ")
		}
		cfg.Seed = 8
		if slices.Equal(a, allFrames(t, cfg)) {
			t.Error("plans of two seeds are the same")
		}
	}
}

// BenchmarkFill measures how fast plans compute the sizes and times of frames.
func BenchmarkFill(b *testing.B) {
	for name, cfg := range map[string]Config{
		"60, constant":   {Sizes: named(b, "60"), Schedule: Schedule{PacketsPerSecond: 1e6}},
		"imix, constant": {Sizes: named(b, "imix"), Schedule: Schedule{Mbps: 900}, Streams: 100},
		"study5, Poisson": {
			Sizes: named(b, "study5"), Schedule: Schedule{PacketsPerSecond: 180_000, Poisson: true}, Streams: 100},
	} {
		b.Run(name, func(b *testing.B) {
			p, err := NewPlan(cfg)
			if err != nil {
				b.Fatal(err)
			}
			batch := make([]Frame, 256)
			b.ReportAllocs()
			for n := 0; n < b.N; n += len(batch) {
				p.Fill(batch)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mframes/s")
		})
	}
}
