package meter

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// Rest says whether the programs of a host still work on the packets that they were sent. The zero value: they do not.
//
// CPU time does not tell that. A program that waits for a CPU uses next to none, like one that has nothing to do. The
// states of their threads differ: the kernel wakes a thread for which packets have come, and the thread stays runnable
// until it has handled them.
type Rest struct {
	Awake       int   `json:"awake"`        // threads that run, wait for a CPU or a disk, or are stopped
	QueuedBytes int64 `json:"queued_bytes"` // memory of frames in the queues of packet sockets; rings are not counted
}

// Rest reads what the host's counted programs still have to do, and the programs that these have started.
func (s *Sampler) Rest() (r Rest, err error) {
	text, err := os.ReadFile("/proc/thread-self/net/packet")
	if err != nil {
		return r, fmt.Errorf("reading the queues of packet sockets: %w", err)
	}
	if r.QueuedBytes, err = parsePacket(string(text)); err != nil {
		return r, err
	}
	alive, err := processesIn(s.PIDLink, s.Skip)
	if err != nil {
		return r, fmt.Errorf("listing the host's programs: %w", err)
	}
	for _, p := range alive {
		if root, _ := s.rootOf(p, alive); root == nil && !s.counts(p) {
			continue
		}
		tids, _ := threads(p.PID) // an error: it has ended meanwhile
		for _, tid := range tids {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tid))
			if err == nil && awake(stat) {
				r.Awake++
			}
		}
	}
	return r, nil
}

// awake reports whether a thread has something to do. stat is the text of its /proc/TID/stat (proc_pid_stat(5)).
// Threads that sleep (S), idle kernel threads (I), zombies (Z) and dead threads (X) have nothing to do.
func awake(stat []byte) bool {
	_, rest, found := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(") "))
	return found && len(rest) > 0 && !strings.ContainsRune("SIZX", rune(rest[0]))
}

// parsePacket adds up the memory of the frames that wait in packet sockets. text is that of /proc/net/packet.
func parsePacket(text string) (bytes int64, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "sk" { // the heading
			continue
		}
		const memory = 6 // Rmem
		if len(f) <= memory {
			return 0, fmt.Errorf(
				"/proc/net/packet: want at least %d columns, have %d: %s", memory+1, len(f), strings.TrimSpace(line))
		}
		n, err := numbers("/proc/net/packet", f[memory:memory+1])
		if err != nil {
			return 0, err
		}
		bytes += n[0]
	}
	return bytes, nil
}
