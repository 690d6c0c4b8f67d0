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

// Names of files: flows-20060102T150405Z.ndjson, and when packed, .ndjson.gz and .idx instead of it.
const (
	prefix    = "flows-"
	layout    = "20060102T150405Z"
	plainEnd  = ".ndjson"
	packedEnd = ".ndjson.gz"
	indexEnd  = ".idx"
)

// segment is one file of the log.
type segment struct {
	base      string    // path without the ending
	beganAt   time.Time // time in its name
	packed    bool      // compressed and indexed
	bytes     int64     // size of the file and its index
	changedAt time.Time // time of the last change
}

func (s segment) path() string {
	if s.packed {
		return s.base + packedEnd
	}
	return s.base + plainEnd
}

// segments lists a log's files, the oldest first. When the daemon was killed while it packed a file, the file exists in
// both forms; segments then lists the plain one.
func segments(folder string) ([]segment, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("listing the flow log: %w", err)
	}
	found := map[string]segment{}
	for _, entry := range entries {
		name, packed := strings.CutSuffix(entry.Name(), packedEnd)
		if !packed {
			var plain bool
			if name, plain = strings.CutSuffix(entry.Name(), plainEnd); !plain {
				continue
			}
		}
		at, isOurs := strings.CutPrefix(name, prefix)
		since, err := time.Parse(layout, at)
		if !isOurs || err != nil {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		} else if err != nil {
			return nil, fmt.Errorf("listing the flow log: %w", err)
		}
		file := segment{base: filepath.Join(folder, name), beganAt: since, packed: packed, bytes: info.Size(),
			changedAt: info.ModTime()}
		if index, err := os.Stat(file.base + indexEnd); packed && err == nil {
			file.bytes += index.Size()
		}
		if other, twice := found[name]; !twice || other.packed {
			found[name] = file
		}
	}
	var all []segment
	for _, file := range found {
		all = append(all, file)
	}
	slices.SortFunc(all, func(a, b segment) int { return cmp.Compare(a.base, b.base) })
	return all, nil
}

// file is the file that the log writes at present. Only one goroutine uses it.
type file struct {
	*os.File
	base      string
	began     time.Time
	goodBytes int64 // bytes of whole lines on the disk; appendLines removes any after them
}

// create makes a new file. Its name has the first second from now on that no other file has.
func create(folder string, now time.Time) (*file, error) {
	for instant := now.UTC(); ; instant = instant.Add(time.Second) {
		base := filepath.Join(folder, prefix+instant.Format(layout))
		if _, err := os.Stat(base + packedEnd); err == nil {
			continue
		}
		created, err := os.OpenFile(base+plainEnd, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("beginning a file of the flow log: %w", err)
		}
		return &file{File: created, base: base, began: now}, nil
	}
}

// appendLines appends lines and synchronises the file to the disk. After an error the file may end in a torn line,
// which the next call removes.
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
