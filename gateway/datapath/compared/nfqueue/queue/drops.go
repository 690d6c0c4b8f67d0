package queue

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

// Drops are packets of a queue that the kernel dropped before they were judged.
type Drops struct {
	Full   uint64 // more than Config.Packets waited
	Unread uint64 // the socket's buffer was full
}

// table lists this network namespace's open queues. The process's first thread may be in
// another namespace than this one.
const table = "/proc/thread-self/net/netfilter/nfnetlink_queue"

// Drops reads how many packets the kernel dropped since the queue was opened.
func (q *Queue) Drops() (Drops, error) {
	f, err := os.Open(table)
	if err != nil {
		return Drops{}, fmt.Errorf("reading what queue %d dropped: %w", q.cfg.Number, err)
	}
	defer f.Close()
	d, err := readDrops(f, q.cfg.Number)
	if err != nil {
		return Drops{}, fmt.Errorf("reading what queue %d dropped: %w", q.cfg.Number, err)
	}
	return d, nil
}

// readDrops finds a queue in the kernel's table: number, port, waiting, copy mode,
// copy range, the two kinds of drops, and more.
func readDrops(r io.Reader, number uint16) (Drops, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var n, port, waiting, mode, bytes, full, unread uint64
		if _, err := fmt.Sscan(lines.Text(), &n, &port, &waiting, &mode, &bytes, &full, &unread); err != nil {
			return Drops{}, fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		if n == uint64(number) {
			return Drops{Full: full, Unread: unread}, nil
		}
	}
	if err := lines.Err(); err != nil {
		return Drops{}, err
	}
	return Drops{}, fmt.Errorf("it is not open")
}
