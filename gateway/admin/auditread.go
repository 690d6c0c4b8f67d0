package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// auditBlock is how much of a file of the audit log is read at once.
const auditBlock = 64 << 10

// page returns up to most entries before the one with an ID, 0: the newest, each with its result, the newest first.
// next is the ID to go on with; 0: there are no more. damaged counts lines that are no entries.
func (a *auditLog) page(before uint64, most int) (page []Entry, next uint64, damaged int, err error) {
	a.reading.Lock()
	defer a.reading.Unlock()
	all, err := a.openAll()
	defer closeAll(all)
	if err != nil {
		return nil, 0, 0, err
	}
	results := map[uint64]string{}
	visit := func(line []byte) bool {
		if id := idOf(line); before > 0 && id >= before {
			return true
		}
		var e Entry
		switch err := json.Unmarshal(line, &e); {
		case len(line) == 0:
		case err != nil || e.ID == 0:
			damaged++
		case e.Action == "":
			results[e.ID] = e.Result
		case len(page) == most:
			next = page[most-1].ID
		default:
			e.Result = results[e.ID]
			page = append(page, e)
		}
		return next == 0
	}
	for _, f := range all {
		if err := backwards(f, f.size, visit); err != nil {
			return nil, 0, 0, fmt.Errorf("reading the audit log: %w", err)
		} else if next > 0 {
			break
		}
	}
	return page, next, damaged, nil
}

// auditFile is a file of the log that is read: whole lines, of which size is the end.
type auditFile struct {
	*os.File
	size int64
}

// openAll opens all files, the newest first, so that none is missed or read twice where another begins meanwhile.
func (a *auditLog) openAll() (all []auditFile, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := range auditFiles {
		f, err := os.Open(a.path(n))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return all, fmt.Errorf("reading the audit log: %w", err)
		}
		all = append(all, auditFile{File: f})
		info, err := f.Stat()
		if err != nil {
			return all, fmt.Errorf("reading the audit log: %w", err)
		}
		all[len(all)-1].size = info.Size()
	}
	return all, nil
}

func closeAll(all []auditFile) {
	for _, f := range all {
		f.Close()
	}
}

// backwards calls visit with the lines of the first size bytes, the last first, until it returns false. A line holds
// only until visit returns.
func backwards(file io.ReaderAt, size int64, visit func(line []byte) bool) error {
	var begun []byte // the end of a line that begins in an earlier block
	block := make([]byte, auditBlock)
	for at := size; at > 0; {
		n := min(at, auditBlock)
		at -= n
		if _, err := file.ReadAt(block[:n], at); err != nil {
			return err
		}
		text := slices.Concat(block[:n], begun)
		for {
			end := bytes.LastIndexByte(text, '\n')
			if end < 0 {
				break
			}
			if !visit(text[end+1:]) {
				return nil
			}
			text = text[:end]
		}
		begun = text
	}
	visit(begun)
	return nil
}
