// Counts the frames that a sink takes, and works on them.

package sink

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
)

// Values of Config.Work: what a sink does with each frame. Study 2 (5.3) simulates an analysis of frames in this way.
const (
	WorkCopy = "memcpy" // copies the kept bytes of the frame
	WorkGzip = "gzip"   // compresses the kept bytes of each frame, at gzip's default level
)

// maxBytes is the longest frame length that is counted apart. Only frames that the kernel has merged are longer.
const maxBytes = 1<<14 - 1

// counter counts frames and works on them. It belongs to one thread.
type counter struct {
	frames int64
	sizes  [maxBytes + 1]int64 // frames by length in bytes
	snap   int                 // bytes of a frame that work is done on, at most
	output []byte              // for WorkCopy, else nil
	gzip   *gzip.Writer        // for WorkGzip, else nil
}

// newCounter makes a counter with the work and the snap length of the settings.
func newCounter(cfg Config) (*counter, error) {
	count := &counter{snap: wholeFrame}
	if cfg.Snap > 0 {
		count.snap = cfg.Snap
	}
	switch cfg.Work {
	case WorkCopy:
		count.output = make([]byte, wholeFrame)
	case WorkGzip:
		count.gzip = gzip.NewWriter(io.Discard)
	}
	return count, nil
}

// frame counts a frame by its length in bytes, and works on its kept bytes.
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

// compress compresses the kept bytes of a frame, and discards the result.
func (c *counter) compress(kept []byte) {
	c.gzip.Reset(io.Discard)
	_, _ = c.gzip.Write(kept) // io.Discard takes everything
	_ = c.gzip.Close()
}

// counts returns the counts so far, without those of lost frames, which the counter does not know.
func (c *counter) counts() Counts {
	counts := Counts{Frames: c.frames, Sizes: map[int]int64{}}
	for bytes, frames := range c.sizes {
		if frames > 0 {
			counts.Sizes[bytes] = frames
		}
	}
	return counts
}

// write writes the counts as a line of JSON.
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
