package runner

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/meter"
)

// pollingNotes have the consequence for each way of metering links that no thread polls.
var pollingNotes = map[string]string{
	meter.BySoftirq: "The router polls its links in interrupts. Their time is exact, by the kernel's tracepoints and " +
		"link by link. It contains what a hypervisor took meanwhile, at most the share interrupt_steal of each record.",
	meter.ByTicks: "The router polls its links in interrupts, and its kernel does not tell whose time these take. CPU " +
		"is that of all interrupts by the ticks of /proc/stat: coarse, and of other links too.",
}

// NotePolling notes once how routers were metered if their links have no threads. routers are samples of them.
func (s *Session) NotePolling(routers []meter.Sample) {
	for _, r := range routers {
		if note := pollingNotes[r.Polling]; note != "" && !slices.Contains(s.env.Notes, note) {
			s.Notice("%s", note)
			s.Note(note)
		}
	}
}
