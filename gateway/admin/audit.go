package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// The audit log is a file of JSON lines in state_dir, which is only appended to, and is on the disk before what it says
// is done. One that has become auditBytes large gets a number, the highest of auditFiles is removed.
const (
	auditName  = "audit.jsonl"
	auditFiles = 10
)

// auditBytes is the size of a file from which on another begins. Tests change it.
var auditBytes = int64(8 << 20)

// Entry is an entry of the audit log: who asked for what. A line of its own, with ID and Result alone, says what became
// of it; without such a line the daemon ended meanwhile.
type Entry struct {
	ID      uint64    `json:"id"`
	At      time.Time `json:"at,omitzero"`
	Who     string    `json:"who,omitempty"`
	From    string    `json:"from,omitempty"` // address; left out: through the socket
	Way     string    `json:"way,omitempty"`  // "page" or "api"
	Action  string    `json:"action,omitempty"`
	Object  string    `json:"object,omitempty"`  // what it was done to
	Details string    `json:"details,omitempty"` // JSON
	Result  string    `json:"result,omitempty"`  // "done", or why not
}

// auditLog is the audit log. Its methods may be called from several goroutines.
type auditLog struct {
	dir string
	log *slog.Logger

	mu   sync.Mutex
	file *os.File // guarded by mu, as what follows
	size int64
	last uint64 // ID of the last entry
}

// openAudit opens the log in a folder. A line that a power cut has torn is ended, so that the next one is whole.
func openAudit(dir string, log *slog.Logger) (*auditLog, error) {
	a := &auditLog{dir: dir, log: log}
	for n := 0; n < auditFiles && a.last == 0; n++ {
		text, err := os.ReadFile(a.path(n))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		for line := range bytes.Lines(text) {
			a.last = max(a.last, idOf(line))
		}
	}
	return a, a.open()
}

func (a *auditLog) path(n int) string {
	path := filepath.Join(a.dir, auditName)
	if n > 0 {
		path += "." + strconv.Itoa(n)
	}
	return path
}

// open opens the file that is written to.
func (a *auditLog) open() error {
	file, err := os.OpenFile(a.path(0), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	info, err := file.Stat()
	if err == nil {
		a.file, a.size = file, info.Size()
		end := make([]byte, 1)
		if a.size == 0 {
			err = syncDir(a.dir)
		} else if _, err = file.ReadAt(end, a.size-1); err == nil && end[0] != '\n' {
			err = a.append([]byte("\n"))
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("opening the audit log: %w", err), file.Close())
	}
	return nil
}

// syncDir has the names in a folder on the disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// append writes a line and waits until it is on the disk. A line that was written in part is taken back. mu is held.
func (a *auditLog) append(line []byte) error {
	if _, err := a.file.Write(line); err != nil {
		return errors.Join(err, a.file.Truncate(a.size))
	}
	a.size += int64(len(line))
	return a.file.Sync()
}

// rotate begins another file, where the present one is large. A crash within leaves a number out at most. mu is held.
func (a *auditLog) rotate() error {
	if a.size < auditBytes {
		return nil
	}
	for n := auditFiles - 2; n >= 0; n-- {
		if err := os.Rename(a.path(n), a.path(n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	former := a.file
	if err := a.open(); err != nil {
		return err
	}
	return former.Close()
}

// write writes an entry, with the next ID unless it has one.
func (a *auditLog) write(e Entry) (uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.rotate(); err != nil {
		return 0, fmt.Errorf("the audit log: %w", err)
	}
	if e.ID == 0 {
		a.last++
		e.ID = a.last
	}
	line, err := json.Marshal(e)
	if err == nil {
		err = a.append(append(line, '\n'))
	}
	if err != nil {
		return 0, fmt.Errorf("the audit log: %w", err)
	}
	return e.ID, nil
}

// begin writes that somebody asks for something. It must not be done where begin fails.
func (a *auditLog) begin(p person, action, object string, details any) (uint64, error) {
	e := Entry{At: time.Now().UTC(), Who: p.Name, Way: p.way, Action: action, Object: object}
	if p.from.IsValid() {
		e.From = p.from.String()
	}
	if details != nil {
		text, err := json.Marshal(details)
		if err != nil {
			return 0, err
		}
		e.Details = string(text)
	}
	id, err := a.write(e)
	if err == nil {
		a.log.Info("admin: "+action, "who", e.Who, "from", e.From, "object", object, "details", e.Details, "id", id)
	}
	return id, err
}

// end writes what became of it.
func (a *auditLog) end(id uint64, result string) {
	if _, err := a.write(Entry{ID: id, Result: result}); err != nil {
		a.log.Error("the audit log lacks what became of an entry", "id", id, "result", result, "err", err)
	}
}

// idOf is the ID that a line begins with; 0: it is none of the log's.
func idOf(line []byte) (id uint64) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"id":`))
	for _, c := range rest {
		if c < '0' || c > '9' {
			break
		}
		id = id*10 + uint64(c-'0')
	}
	if !ok {
		return 0
	}
	return id
}

// page returns up to most entries before the one with an ID, 0: the newest, each with its result, the newest first.
// next is the ID to go on with; 0: there are no more. damaged counts lines that are no entries.
func (a *auditLog) page(before uint64, most int) (page []Entry, next uint64, damaged int, err error) {
	results := map[uint64]string{}
	for n := range auditFiles {
		a.mu.Lock() // between two renames a file would be missing
		text, err := os.ReadFile(a.path(n))
		a.mu.Unlock()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, 0, 0, fmt.Errorf("reading the audit log: %w", err)
		}
		for text = bytes.TrimRight(text, "\n"); len(text) > 0; {
			begin := bytes.LastIndexByte(text, '\n') + 1
			line := text[begin:]
			text = text[:max(0, begin-1)]
			var e Entry
			if id := idOf(line); before > 0 && id >= before && id > 0 {
				continue
			}
			switch err := json.Unmarshal(line, &e); {
			case len(line) == 0:
			case err != nil || e.ID == 0:
				damaged++
			case e.Action == "":
				results[e.ID] = e.Result
			case len(page) == most:
				return page, page[most-1].ID, damaged, nil
			default:
				e.Result = results[e.ID]
				page = append(page, e)
			}
		}
	}
	return page, 0, damaged, nil
}

func (a *auditLog) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.file.Close()
}
