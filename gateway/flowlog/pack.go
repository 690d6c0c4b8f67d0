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

// A packed file is a gzip file with one member for each block of lines, which zcat reads, and an index beside it:
//
//	magic, 8 bytes │ number of blocks, 4 │ of entries, 4 │ offsets of blocks and of the end, 8 each │ entries, 8 each
//
// in big-endian order. An entry is the hash of an address and port, and the number of a block with a line that has
// them. Entries are sorted by hash. Hashes are spread evenly, so a search can guess where its entries are: it reads a
// few runs of entries and unpacks few blocks, however large the file is.
const (
	magic      = "gwflows1"
	headBytes  = len(magic) + 8
	entryBytes = 8
	runEntries = 512     // number of entries that a search reads at once
	blockLines = 128     // number of lines in a block
	maxLine    = 1 << 16 // bytes; longer lines count as damaged
)

// hash returns the hash of an address and port in the index (FNV-1a, 32 bits).
func hash(endpoint netip.AddrPort) uint32 {
	digest := fnv.New32a()
	digest.Write(binary.BigEndian.AppendUint16(endpoint.Addr().Unmap().AsSlice(), endpoint.Port()))
	return digest.Sum32()
}

// pack compresses and indexes a file, and then removes the plain one, so that every line is in a complete file at any
// time. It keeps damaged lines, but does not index them.
func pack(base string) error {
	in, err := os.Open(base + plainEnd)
	if err != nil {
		return fmt.Errorf("closing a file of the flow log: %w", err)
	}
	defer in.Close()
	var index indexer
	err = statefile.Replace(base+packedEnd, func(w io.Writer) error { return index.compress(w, in) })
	if err == nil {
		err = statefile.Replace(base+indexEnd, index.write)
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
	counting := &countingWriter{w: w}
	compressor, err := gzip.NewWriterLevel(counting, gzip.BestSpeed)
	if err != nil {
		return err
	}
	r := bufio.NewReaderSize(lines, maxLine)
	inBlock := 0
	x.offsets = []uint64{0}
	end := func() error {
		err := compressor.Close()
		compressor.Reset(counting)
		x.offsets, inBlock = append(x.offsets, counting.n), 0
		return err
	}
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			if _, err := compressor.Write(line); err != nil {
				return err
			}
			inBlock++
			if flow, ok := parseLine(line); ok {
				for _, k := range flow.keys() {
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

// countingWriter counts the bytes that it writes.
type countingWriter struct {
	w io.Writer
	n uint64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += uint64(n)
	return n, err
}

var errIndex = errors.New("the index is damaged")

// index is an open index file. It reads only the parts that a search needs.
type index struct {
	r               io.ReaderAt
	blocks, entries int

	run   []byte // the entries that entry has read last
	first int    // number of the first of them
}

// openIndex opens an index of size bytes. packed is the size of the packed file, which the index must match.
func openIndex(r io.ReaderAt, size, packed int64) (*index, error) {
	head := make([]byte, headBytes)
	if _, err := r.ReadAt(head, 0); err != nil || string(head[:len(magic)]) != magic {
		return nil, errIndex
	}
	x := &index{r: r, blocks: int(binary.BigEndian.Uint32(head[8:])), entries: int(binary.BigEndian.Uint32(head[12:]))}
	if int64(headBytes)+int64(x.blocks+1)*8+int64(x.entries)*entryBytes != size {
		return nil, errIndex
	}
	if end, err := x.readOffset(int64(headBytes + 8*x.blocks)); err != nil || int64(end) != packed {
		return nil, errIndex
	}
	return x, nil
}

func (x *index) readOffset(at int64) (uint64, error) {
	var b [8]byte
	_, err := x.r.ReadAt(b[:], at)
	return binary.BigEndian.Uint64(b[:]), err
}

// entry returns the i-th entry. It reads and keeps the run around it.
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

// find returns the number of the first entry whose hash is not smaller.
func (x *index) find(hash uint32) (position int, err error) {
	before := func(i int) bool {
		e, failed := x.entry(i)
		err = errors.Join(err, failed)
		return err == nil && e.hash < hash
	}
	// Begin with the run in which the entry is if hashes are spread evenly.
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
func (x *index) search(endpoint netip.AddrPort, visit func(from, to int64) error) error {
	key := hash(endpoint)
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
		from, err := x.readOffset(int64(headBytes) + 8*int64(e.block))
		to, err2 := x.readOffset(int64(headBytes) + 8*int64(e.block+1))
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

// lineReaders has bufio.Readers for reuse: a search needs one for each block.
var lineReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxLine) }}

// scan calls visit with the flow of each line that contains one of the words; without words, of every line. It returns
// the number of damaged lines that may have contained one.
func scan(r io.Reader, visit func(Flow), words ...[]byte) (damaged int, err error) {
	in := lineReaders.Get().(*bufio.Reader)
	defer lineReaders.Put(in)
	in.Reset(r)
	for {
		line, err := in.ReadSlice('\n')
		if whole := err == nil; len(line) > 0 && (!whole || lineMatches(line, words)) {
			if flow, ok := parseLine(line); ok && whole {
				visit(flow)
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
	// A line that is no JSON object is damaged, and may have been the wanted one.
	return len(words) == 0 || line[0] != '{' || !bytes.HasSuffix(line, []byte("}\n")) ||
		slices.ContainsFunc(words, func(w []byte) bool { return bytes.Contains(line, w) })
}
