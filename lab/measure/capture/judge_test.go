package capture

import "testing"

// TestWaiting: a trial is rejected if a station's threads waited for a CPU longer than a limit. They may wait for each
// other, and for the program that slows their CPU. Longer waits mean that other programs had the CPU. fits is true if
// the wait is within the limit. The fields of w are shares of the time in which frames were sent: see cpuWaits.
func TestWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		w    cpuWaits
		fits bool
	}{
		"alone": {
			cpuWaits{used: 0.11, hasCPUs: []float64{1}, waits: []float64{0.02}, queues: []float64{1}}, true},
		"two busy programs of others on the CPU": {
			cpuWaits{used: 0.11, hasCPUs: []float64{1}, waits: []float64{0.99}, queues: []float64{1}}, false},
		"a full CPU": {
			cpuWaits{used: 0.97, hasCPUs: []float64{1}, waits: []float64{1.7}, queues: []float64{1}}, true},
		"a full slowed CPU": {
			cpuWaits{used: 0.1, taken: 0.9, hasCPUs: []float64{0.1}, waits: []float64{1.8}, queues: []float64{1}}, true},
		"a slowed CPU": {
			cpuWaits{used: 0.05, taken: 0.9, hasCPUs: []float64{0.1}, waits: []float64{1.2}, queues: []float64{1}}, true},
		"four programs, a busy CPU": {
			cpuWaits{used: 0.6, hasCPUs: []float64{1}, waits: []float64{1.9}, queues: []float64{4}}, true},
		"four programs, and busy ones of others": {
			cpuWaits{used: 0.2, hasCPUs: []float64{1}, waits: []float64{3.6}, queues: []float64{4}}, false},
	} {
		if wait, limit := c.w.wait(0); (wait <= limit) != c.fits {
			t.Errorf("%s: waited %g, limit %g, want it to fit: %v", name, wait, limit, c.fits)
		}
	}
}

// TestWaitingForASecondCPU: capture programs may wait for each other on the second CPU: the limit is the number of all
// stations' programs less one half. queues has the number of programs of each station.
func TestWaitingForASecondCPU(t *testing.T) {
	for want, queues := range map[float64][]float64{0.5: {1}, 3.5: {4}, 2.5: {1, 2}} {
		if got := (cpuWaits{queues: queues}).secondLimit(); got != want {
			t.Errorf("programs %v: %g, want %g", queues, got, want)
		}
	}
}
