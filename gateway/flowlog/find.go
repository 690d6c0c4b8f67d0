package flowlog

import (
	"bytes"
	"cmp"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
)

// Errors of Find.
var (
	ErrNoLog  = errors.New("there is no flow log")
	ErrTooOld = errors.New("the flow log does not go back that far")
)

// clockSlack is how far the start in a flow's lines may differ: of one that began under a former daemon the
// kernel says when, and reported its begin without that time.
const clockSlack = 2 * time.Second

// Found is the result of a search: the flows that had an address and port at a time.
type Found struct {
	Flows   []Flow // one for each; Ends: whole. Begins: its end is not in the log
	Damaged int    // lines that could not be read and may have been of the address
	Slow    int    // closed files without a usable index, which were read whole
	Since   time.Time
}

// FindFlows returns the flows that had an address and port in the second of a time, of the client or as the peer saw
// it. It needs no daemon, and may run beside one: lines are found a second after their event. It fails with ErrNoLog
// for a folder without files, and with ErrTooOld if the oldest is younger than the time and nothing is found.
func FindFlows(folder string, endpoint netip.AddrPort, instant time.Time) (Found, error) {
	if info, err := os.Stat(folder); folder == "" {
		return Found{}, errors.New("the flow log's folder has an empty name: name it")
	} else if err == nil && !info.IsDir() {
		return Found{}, fmt.Errorf("%s is no folder: name that of the flow log", folder)
	}
	all, err := segments(folder)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(all) == 0 {
		return Found{}, fmt.Errorf("%w in %s: set flowlog.enabled = true, or name the folder", ErrNoLog, folder)
	} else if err != nil {
		return Found{}, err
	}
	found := Found{Since: all[0].beganAt}
	var lines []Flow
	for _, s := range all {
		err := s.search(endpoint, &found, func(f Flow) {
			if slices.Contains(f.keys(), endpoint) {
				lines = append(lines, f)
			}
		})
		if err != nil {
			return found, fmt.Errorf("reading the flow log: %w", err)
		}
	}
	found.Flows = existing(joinLines(lines), instant)
	if len(found.Flows) == 0 && instant.Before(found.Since) {
		return found, fmt.Errorf(
			"%w: it begins at %s (flowlog.keep and flowlog.most bound it)", ErrTooOld, found.Since.Format(time.RFC3339))
	}
	return found, nil
}

// search visits the lines of a file that may be of an address.
func (s segment) search(endpoint netip.AddrPort, found *Found, visit func(Flow)) error {
	word := []byte(`"` + endpoint.String() + `"`)
	f, err := os.Open(s.path())
	if errors.Is(err, fs.ErrNotExist) && !s.packed { // packed meanwhile
		s.packed = true
		f, err = os.Open(s.path())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	} else if err != nil {
		return err
	}
	defer f.Close()
	if !s.packed {
		damaged, err := scan(f, visit, word)
		found.Damaged += damaged
		return err
	}
	err = s.searchIndex(f, endpoint, func(from, to int64) error {
		damaged, err := unpack(io.NewSectionReader(f, from, to-from), visit, word)
		found.Damaged += damaged
		return err
	})
	if !errors.Is(err, errIndex) {
		return err
	}
	found.Slow++
	damaged, err := unpack(f, visit, word)
	found.Damaged += damaged
	return err
}

// searchIndex visits the blocks that the index names. It fails with errIndex where there is no usable one.
func (s segment) searchIndex(packed *os.File, endpoint netip.AddrPort, visit func(from, to int64) error) error {
	info, err := packed.Stat()
	if err != nil {
		return err
	}
	f, err := os.Open(s.base + indexEnd)
	if errors.Is(err, fs.ErrNotExist) {
		return errIndex
	} else if err != nil {
		return err
	}
	defer f.Close()
	current, err := f.Stat()
	if err != nil {
		return err
	}
	x, err := openIndex(f, current.Size(), info.Size())
	if err != nil {
		return err
	}
	return x.search(endpoint, visit)
}

// unpackers are gzip.Readers that are used again.
var unpackers = sync.Pool{New: func() any { return new(gzip.Reader) }}

// unpack scans gzip members. Damaged ones count as one line.
func unpack(r io.Reader, visit func(Flow), word []byte) (damaged int, err error) {
	z := unpackers.Get().(*gzip.Reader)
	defer unpackers.Put(z)
	err = z.Reset(r)
	if err == nil {
		damaged, err = scan(z, visit, word)
	} else {
		damaged = 1
	}
	var corrupt flate.CorruptInputError
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.EOF) || errors.As(err, &corrupt) {
		err = nil
	}
	return damaged, err
}

// joinLines makes one flow of each pair of lines. Of two starts without an end between them, as a restarted daemon
// writes them, the first counts.
func joinLines(lines []Flow) (flows []Flow) {
	order := func(a, b Flow) int {
		return cmp.Or(a.Start.Compare(b.Start), bytes.Compare([]byte(a.Event), []byte(b.Event)))
	}
	var starts []Flow
	for _, f := range lines {
		if f.Event == Begins {
			starts = append(starts, f)
		} else if !slices.ContainsFunc(flows, func(g Flow) bool { return f == g }) {
			flows = append(flows, f)
		}
	}
	slices.SortStableFunc(starts, order)
	ends := len(flows)
	for _, s := range starts {
		whole := slices.IndexFunc(flows[:ends], func(e Flow) bool {
			return s.same(&e) && !s.Start.Before(e.Start.Add(-clockSlack)) && !s.Start.After(e.End)
		})
		if whole >= 0 {
			if e := &flows[whole]; e.User == "" && e.Session == "" { // a restarted daemon may not know it any more
				e.MAC, e.User, e.Session = s.MAC, s.User, s.Session
			}
			continue
		}
		again := slices.ContainsFunc(
			flows[ends:], func(f Flow) bool { return s.same(&f) && s.Start.Sub(f.Start) <= clockSlack })
		if !again {
			flows = append(flows, s)
		}
	}
	slices.SortStableFunc(flows, order)
	return flows
}

// existing returns the flows that existed in the second of a time. One whose end is unknown existed no longer once the
// next one with the same addresses and ports began.
func existing(flows []Flow, instant time.Time) (then []Flow) {
	instant = instant.Truncate(time.Second)
	until := instant.Add(time.Second - 1)
	for i, f := range flows {
		replaced := func(next Flow) bool { return f.same(&next) && next.Start.After(f.Start) && next.Start.Before(instant) }
		switch {
		case f.Start.After(until):
		case f.Event == Ends && f.End.Before(instant):
		case f.Event == Begins && slices.ContainsFunc(flows[i+1:], replaced):
		default:
			then = append(then, f)
		}
	}
	return then
}
