package flowlog

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/netip"
	"os"
	"slices"
	"sort"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// A closed file is a gzip file of one member for each block of lines, which zcat reads as any other, and an index
// beside it:
//
//	magic, 8 bytes │ blocks, 4 │ entries, 4 │ offsets of members and of the end, 8 each │ entries, 8 each
//
// in big-endian order. An entry is the hash of an address and port and the number of a block with a line of it; entries
// are sorted. Hashes are spread evenly, so a search knows nearly where its entries are: it reads a few runs of them and
// unpacks few blocks, however large the file is.
const (
	magic      = "gwflows1"
	headBytes  = len(magic) + 8
	entryBytes = 8
	runEntries = 512 // that are read at once
	blockLines = 128
	maxLine    = 1 << 16 // bytes; longer ones are damage
)

// hash is an entry's key.
func hash(a netip.AddrPort) uint32 {
	h := fnv.New32a()
	ip := a.Addr().As4()
	h.Write(binary.BigEndian.AppendUint16(ip[:], a.Port()))
	return h.Sum32()
}

// pack closes a file: compresses and indexes it, and removes the plain one last, so that every line is in a complete
// file at every moment. Damaged lines are kept and not indexed.
func pack(base string) error {
	in, err := os.Open(base + plainEnd)
	if err != nil {
		return fmt.Errorf("closing a file of the flow log: %w", err)
	}
	defer in.Close()
	var x indexer
	err = statefile.Replace(base+packedEnd, func(w io.Writer) error { return x.compress(w, in) })
	if err == nil {
		err = statefile.Replace(base+indexEnd, x.write)
	}
	if err == nil {
		err = os.Remove(base + plainEnd)
	}
	if err != nil {
		return fmt.Errorf("closing %s of the flow log: %w", base+plainEnd, err)
	}
	return nil
}

// indexer collects a file's index while its lines are compressed.
type indexer struct {
	offsets []uint64
	entries []entry
}

// entry is an entry of an index: the hash of an address and port, and the block of lines that has it.
type entry struct{ hash, block uint32 }

func (x *indexer) compress(w io.Writer, lines io.Reader) error {
	counting := &counter{w: w}
	z, err := gzip.NewWriterLevel(counting, gzip.BestSpeed)
	if err != nil {
		return err
	}
	r := bufio.NewReaderSize(lines, maxLine)
	inBlock := 0
	x.offsets = []uint64{0}
	end := func() error {
		err := z.Close()
		z.Reset(counting)
		x.offsets, inBlock = append(x.offsets, counting.n), 0
		return err
	}
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			if _, err := z.Write(line); err != nil {
				return err
			}
			inBlock++
			if f, ok := parseLine(line); ok {
				for _, k := range f.keys() {
					x.entries = append(x.entries, entry{hash(k), uint32(len(x.offsets) - 1)})
				}
			}
		}
		switch {
		case err == io.EOF && inBlock > 0:
			return end()
		case err == io.EOF:
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
		if inBlock >= blockLines {
			if err := end(); err != nil {
				return err
			}
		}
	}
}

func (x *indexer) write(w io.Writer) error {
	slices.SortFunc(
		x.entries, func(a, b entry) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.block, b.block)) })
	x.entries = slices.Compact(x.entries)
	b := append([]byte(nil), magic...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(x.offsets)-1))
	b = binary.BigEndian.AppendUint32(b, uint32(len(x.entries)))
	for _, o := range x.offsets {
		b = binary.BigEndian.AppendUint64(b, o)
	}
	for _, e := range x.entries {
		b = binary.BigEndian.AppendUint32(b, e.hash)
		b = binary.BigEndian.AppendUint32(b, e.block)
	}
	_, err := w.Write(b)
	return err
}

// counter is a writer that counts the bytes that were written.
type counter struct {
	w io.Writer
	n uint64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += uint64(n)
	return n, err
}

var errIndex = errors.New("the index is damaged")

// index is an index file, open for search. It reads only the parts that a search needs.
type index struct {
	r               io.ReaderAt
	blocks, entries int

	run   []byte // the entries that were read last
	first int    // number of its first entry
}

// openIndex checks an index of size bytes against the packed file's size.
func openIndex(r io.ReaderAt, size, packed int64) (*index, error) {
	head := make([]byte, headBytes)
	if _, err := r.ReadAt(head, 0); err != nil || string(head[:len(magic)]) != magic {
		return nil, errIndex
	}
	x := &index{r: r, blocks: int(binary.BigEndian.Uint32(head[8:])), entries: int(binary.BigEndian.Uint32(head[12:]))}
	if int64(headBytes)+int64(x.blocks+1)*8+int64(x.entries)*entryBytes != size {
		return nil, errIndex
	}
	if end, err := x.number(int64(headBytes + 8*x.blocks)); err != nil || int64(end) != packed {
		return nil, errIndex
	}
	return x, nil
}

func (x *index) number(at int64) (uint64, error) {
	var b [8]byte
	_, err := x.r.ReadAt(b[:], at)
	return binary.BigEndian.Uint64(b[:]), err
}

// entry returns an entry, and reads those around it.
func (x *index) entry(i int) (entry, error) {
	if i < x.first || i >= x.first+len(x.run)/entryBytes {
		first := i - i%runEntries
		run := make([]byte, min(runEntries, x.entries-first)*entryBytes)
		if _, err := x.r.ReadAt(run, int64(headBytes+8*(x.blocks+1))+int64(first)*entryBytes); err != nil {
			return entry{}, err
		}
		x.run, x.first = run, first
	}
	n := binary.BigEndian.Uint64(x.run[(i-x.first)*entryBytes:])
	return entry{uint32(n >> 32), uint32(n)}, nil
}

// find returns the number of the first entry with a hash, or of the one that would follow it.
func (x *index) find(hash uint32) (position int, err error) {
	before := func(i int) bool {
		e, failed := x.entry(i)
		err = errors.Join(err, failed)
		return err == nil && e.hash < hash
	}
	// Where it is if hashes are spread as evenly as chance has them, give or take a run.
	low := int(uint64(hash) * uint64(x.entries) >> 32)
	low -= low % runEntries
	high := min(low+runEntries, x.entries)
	for step := runEntries; low > 0 && !before(low-1) && err == nil; step *= 2 {
		low, high = max(low-step, 0), low
	}
	for step := runEntries; high < x.entries && before(high-1); step *= 2 {
		low, high = high, min(high+step, x.entries)
	}
	position = low + sort.Search(high-low, func(i int) bool { return !before(low + i) })
	return position, err
}

// search calls visit with the offsets of each block that may have a line of an address and port.
func (x *index) search(a netip.AddrPort, visit func(from, to int64) error) error {
	key := hash(a)
	i, err := x.find(key)
	for ; err == nil && i < x.entries; i++ {
		e, err := x.entry(i)
		if err != nil {
			return err
		}
		if e.hash != key {
			break
		}
		if int(e.block) >= x.blocks {
			return errIndex
		}
		from, err := x.number(int64(headBytes) + 8*int64(e.block))
		to, err2 := x.number(int64(headBytes) + 8*int64(e.block+1))
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if to < from || to-from > 64<<20 {
			return errIndex
		}
		if err := visit(int64(from), int64(to)); err != nil {
			return err
		}
	}
	return err
}

// lineReaders are bufio.Readers that are used again: a search has one for each block.
var lineReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxLine) }}

// scan calls visit with each line that has one of the words in it and is a flow, and returns how many such
// lines are damaged: torn by a crash, or overwritten. Without words it visits all.
func scan(r io.Reader, visit func(Flow), words ...[]byte) (damaged int, err error) {
	in := lineReaders.Get().(*bufio.Reader)
	defer lineReaders.Put(in)
	in.Reset(r)
	for {
		line, err := in.ReadSlice('\n')
		if whole := err == nil; len(line) > 0 && (!whole || lineMatches(line, words)) {
			if f, ok := parseLine(line); ok && whole {
				visit(f)
			} else {
				damaged++
			}
		}
		switch {
		case err == io.EOF:
			return damaged, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return damaged + 1, err
		}
	}
}

func lineMatches(line []byte, words [][]byte) bool {
	// What is no object is visited too: it may have been the wanted line.
	return len(words) == 0 || line[0] != '{' || !bytes.HasSuffix(line, []byte("}\n")) ||
		slices.ContainsFunc(words, func(w []byte) bool { return bytes.Contains(line, w) })
}
