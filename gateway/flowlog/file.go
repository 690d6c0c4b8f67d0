package flowlog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Names of files: flows-20060102T150405Z.ndjson, and once closed .ndjson.gz and .idx in place of it.
const (
	prefix    = "flows-"
	layout    = "20060102T150405Z"
	plainEnd  = ".ndjson"
	packedEnd = ".ndjson.gz"
	indexEnd  = ".idx"
)

// segment is one file of the log.
type segment struct {
	base      string    // path without an ending
	beganAt   time.Time // when it was begun, by its name
	packed    bool      // closed: compressed and indexed
	bytes     int64     // of the file and its index
	changedAt time.Time // of the last change
}

func (s segment) path() string {
	if s.packed {
		return s.base + packedEnd
	}
	return s.base + plainEnd
}

// segments lists a log's files, the oldest first. A file that was being closed when the daemon died is there twice; the
// plain one counts.
func segments(folder string) ([]segment, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("listing the flow log: %w", err)
	}
	found := map[string]segment{}
	for _, e := range entries {
		name, packed := strings.CutSuffix(e.Name(), packedEnd)
		if !packed {
			var plain bool
			if name, plain = strings.CutSuffix(e.Name(), plainEnd); !plain {
				continue
			}
		}
		at, isOurs := strings.CutPrefix(name, prefix)
		since, err := time.Parse(layout, at)
		if !isOurs || err != nil {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		} else if err != nil {
			return nil, fmt.Errorf("listing the flow log: %w", err)
		}
		s := segment{base: filepath.Join(folder, name), beganAt: since, packed: packed, bytes: info.Size(),
			changedAt: info.ModTime()}
		if index, err := os.Stat(s.base + indexEnd); packed && err == nil {
			s.bytes += index.Size()
		}
		if other, twice := found[name]; !twice || other.packed {
			found[name] = s
		}
	}
	var all []segment
	for _, s := range found {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b segment) int { return cmp.Compare(a.base, b.base) })
	return all, nil
}

// file is the file that is written at present. At most one goroutine uses it.
type file struct {
	*os.File
	base      string
	began     time.Time
	goodBytes int64 // bytes that are written and synchronised; what follows is removed
}

// create begins a file. Its name's time is a free second, not before now.
func create(folder string, now time.Time) (*file, error) {
	for instant := now.UTC(); ; instant = instant.Add(time.Second) {
		base := filepath.Join(folder, prefix+instant.Format(layout))
		if _, err := os.Stat(base + packedEnd); err == nil {
			continue
		}
		f, err := os.OpenFile(base+plainEnd, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("beginning a file of the flow log: %w", err)
		}
		return &file{File: f, base: base, began: now}, nil
	}
}

// appendLines appends lines and has them on the disk. On error the file is as before, or ends in a torn
// line that the next call removes.
func (f *file) appendLines(lines []byte) error {
	if err := f.Truncate(f.goodBytes); err != nil {
		return fmt.Errorf("writing the flow log: %w", err)
	}
	_, err := f.WriteAt(lines, f.goodBytes)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing the flow log: %w", errors.Join(err, f.Truncate(f.goodBytes)))
	}
	f.goodBytes += int64(len(lines))
	return nil
}
