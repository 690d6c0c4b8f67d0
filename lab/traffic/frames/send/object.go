package send

import (
	"github.com/gateweigh/gateweigh/lab/layout"
)

// CheckObject returns an error if the embedded eBPF programs do not fit this program's architecture.
func CheckObject() error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	return layout.Check(spec, map[string]any{"controls": programsControl{}, "heads": programsHead{},
		"slots": programsSlot{}, "link": uint32(0)})
}

// Frame is the frame of a stream as it leaves a link.
func Frame(s Stream, bytes int, number uint64, sentNs int64) ([]byte, error) {
	f := newFiller()
	h, err := s.head(f)
	if err != nil {
		return nil, err
	}
	b := append([]byte(nil), f.bytes[:bytes]...)
	f.write(b, &h, &programsSlot{Bytes: uint32(bytes), Which: number & (1<<48 - 1)}, uint64(sentNs))
	return b[:max(bytes, minBytes([]programsHead{h}))], nil
}
