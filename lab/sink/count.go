package sink

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
)

// Work that is done for each frame, as study 2 (5.3) simulates an analysis.
const (
	WorkCopy = "memcpy" // copies what is kept of the frame
	WorkGzip = "gzip"   // compresses it by itself, at gzip's default level
)

// maxBytes is the longest frame that is counted by its size. Only frames that the kernel has merged are longer.
const maxBytes = 1<<14 - 1

// counter counts frames and works on them. It belongs to one thread.
type counter struct {
	frames int64
	sizes  [maxBytes + 1]int64
	snap   int
	output []byte       // of WorkCopy
	gzip   *gzip.Writer // of WorkGzip
}

func newCounter(cfg Config) (*counter, error) {
	c := &counter{snap: wholeFrame}
	if cfg.Snap > 0 {
		c.snap = cfg.Snap
	}
	switch cfg.Work {
	case WorkCopy:
		c.output = make([]byte, wholeFrame)
	case WorkGzip:
		c.gzip = gzip.NewWriter(io.Discard)
	}
	return c, nil
}

// frame counts a frame of so many bytes, and works on what was kept of it.
func (c *counter) frame(kept []byte, bytes int) {
	c.frames++
	c.sizes[min(uint(bytes), maxBytes)]++
	switch {
	case c.output != nil:
		copy(c.output, kept)
	case c.gzip != nil:
		c.compress(kept)
	}
}

func (c *counter) compress(kept []byte) {
	c.gzip.Reset(io.Discard)
	_, _ = c.gzip.Write(kept) // io.Discard takes everything
	_ = c.gzip.Close()
}

func (c *counter) counts() Counts {
	n := Counts{Frames: c.frames, Sizes: map[int]int64{}}
	for bytes, frames := range c.sizes {
		if frames > 0 {
			n.Sizes[bytes] = frames
		}
	}
	return n
}

func (n Counts) write(out io.Writer) error {
	line, err := json.Marshal(n)
	if err == nil {
		_, err = fmt.Fprintf(out, "%s\n", line)
	}
	if err != nil {
		return fmt.Errorf("writing the counts: %w", err)
	}
	return nil
}
