package flowlog

import (
	"bytes"
	"cmp"
	"compress/flate"
	"compress/gzip"
	"context"
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

// Errors of FindFlows.
var (
	ErrNoLog  = errors.New("there is no flow log")
	ErrTooOld = errors.New("the flow log does not go back that far")
)

// clockSlack is the largest difference of the start between the two lines of a flow. They differ when the kernel's
// report of the start had no time, and its list, which another daemon has read, has one.
const clockSlack = 2 * time.Second

// Found is the result of a search: the flows that had an address and port at a time.
type Found struct {
	Flows   []Flow    // with Event Ends, or with Begins when the end is not in the log
	Damaged int       // number of unreadable lines that may have been about the address
	Slow    int       // number of packed files without a usable index, which were read whole
	Since   time.Time // begin of the oldest file
}

// FindFlows returns the flows that had an address and port in the second of instant: the client's, or those that the
// peer saw in their place. It needs no daemon, and may run beside one, which writes lines about a second after their
// event. It returns ErrNoLog for a folder without files, and ErrTooOld if it finds nothing and instant is before the
// oldest file.
func FindFlows(folder string, endpoint netip.AddrPort, instant time.Time) (Found, error) {
	return find(context.Background(), folder, endpoint, instant)
}

// find is FindFlows that ends with the file in which ctx ends, by its error.
func find(ctx context.Context, folder string, endpoint netip.AddrPort, instant time.Time) (Found, error) {
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
	for _, file := range all {
		if ctx.Err() != nil {
			return found, ctx.Err()
		}
		err := file.search(endpoint, &found, func(flow Flow) {
			if slices.Contains(flow.keys(), endpoint) {
				lines = append(lines, flow)
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

// search calls visit with each flow of a file that may have an address and port.
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

// searchIndex calls visit with the offsets of each block that the index names. It returns errIndex when there is no
// usable index.
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
	index, err := openIndex(f, current.Size(), info.Size())
	if err != nil {
		return err
	}
	return index.search(endpoint, visit)
}

// unpackers has gzip.Readers for reuse.
var unpackers = sync.Pool{New: func() any { return new(gzip.Reader) }}

// unpack scans gzip members for a word. A damaged member counts as one damaged line.
func unpack(r io.Reader, visit func(Flow), word []byte) (damaged int, err error) {
	compressed := unpackers.Get().(*gzip.Reader)
	defer unpackers.Put(compressed)
	err = compressed.Reset(r)
	if err == nil {
		damaged, err = scan(compressed, visit, word)
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

// joinLines makes one flow of each pair of lines. A restarted daemon writes another start of the same flow; joinLines
// takes the first one.
func joinLines(lines []Flow) (flows []Flow) {
	order := func(a, b Flow) int {
		return cmp.Or(a.Start.Compare(b.Start), bytes.Compare([]byte(a.Event), []byte(b.Event)))
	}
	var starts []Flow
	for _, flow := range lines {
		if flow.Event == Begins {
			starts = append(starts, flow)
		} else if !slices.ContainsFunc(flows, func(g Flow) bool { return flow == g }) {
			flows = append(flows, flow)
		}
	}
	slices.SortStableFunc(starts, order)
	ends := len(flows)
	for _, s := range starts {
		whole := slices.IndexFunc(flows[:ends], func(e Flow) bool {
			return s.sameTuple(&e) && !s.Start.Before(e.Start.Add(-clockSlack)) && !s.Start.After(e.End)
		})
		if whole >= 0 {
			if e := &flows[whole]; e.User == "" && e.Session == "" { // a restarted daemon may not know it any more
				e.MAC, e.User, e.Session = s.MAC, s.User, s.Session
			}
			continue
		}
		again := slices.ContainsFunc(
			flows[ends:], func(flow Flow) bool { return s.sameTuple(&flow) && s.Start.Sub(flow.Start) <= clockSlack })
		if !again {
			flows = append(flows, s)
		}
	}
	slices.SortStableFunc(flows, order)
	return flows
}

// existing returns the flows that existed in the second of instant. A flow without a known end has ended when the next
// flow with the same addresses and ports began.
func existing(flows []Flow, instant time.Time) (then []Flow) {
	instant = instant.Truncate(time.Second)
	until := instant.Add(time.Second - 1)
	for i, flow := range flows {
		replaced := func(next Flow) bool {
			return flow.sameTuple(&next) && next.Start.After(flow.Start) && next.Start.Before(instant)
		}
		switch {
		case flow.Start.After(until):
		case flow.Event == Ends && flow.End.Before(instant):
		case flow.Event == Begins && slices.ContainsFunc(flows[i+1:], replaced):
		default:
			then = append(then, flow)
		}
	}
	return then
}
