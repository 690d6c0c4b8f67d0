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
	"slices"
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

	reading sync.Mutex // held by who reads a page: it may read all files

	mu   sync.Mutex
	file *os.File // guarded by mu, as what follows; nil: the next write opens it
	size int64    // of file
	torn bool     // file ends within a line, as a power cut leaves it
	last uint64   // ID of the last entry
}

// openAudit opens the log in a folder. The last ID is that of the two newest files: a result may come a file later than
// its entry, so the newest may have no ID but former ones.
func openAudit(dir string, log *slog.Logger) (*auditLog, error) {
	a := &auditLog{dir: dir, log: log}
	for n, found := 0, 0; n < auditFiles && found < 2; n++ {
		text, err := os.ReadFile(a.path(n))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		found++
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

// open opens the file that is written to, a new one where the present one is large. After an error there is no file,
// and the next open begins where this one ended. mu is held, or a is not shared yet.
func (a *auditLog) open() error {
	if info, err := os.Stat(a.path(0)); err == nil && info.Size() >= auditBytes {
		if err := a.shift(); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(a.path(0), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	torn := false
	info, err := file.Stat()
	if err == nil && info.Size() == 0 {
		err = syncDir(a.dir)
	} else if err == nil {
		end := make([]byte, 1)
		_, err = file.ReadAt(end, info.Size()-1)
		torn = end[0] != '\n'
	}
	if err != nil {
		return errors.Join(fmt.Errorf("opening the audit log: %w", err), file.Close())
	}
	a.file, a.size, a.torn = file, info.Size(), torn
	return nil
}

// shift gives each file the next number, up to the first number that is free: after an error or a crash within, what
// was shifted is not shifted again. mu is held.
func (a *auditLog) shift() error {
	free := 1
	for ; free < auditFiles-1; free++ {
		if _, err := os.Lstat(a.path(free)); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	for n := free - 1; n >= 0; n-- {
		if err := os.Rename(a.path(n), a.path(n+1)); err != nil {
			return err
		}
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

// append writes a line and waits until it is on the disk. A line that may not be there is taken back as far as that is
// possible, and the file is opened anew for the next one: after an error a sync says nothing of what was written
// before. mu is held.
func (a *auditLog) append(line []byte) error {
	if a.file != nil && a.size >= auditBytes {
		a.file.Close() // every line is on the disk
		a.file = nil
	}
	if a.file == nil {
		if err := a.open(); err != nil {
			return err
		}
	}
	if a.torn {
		line = slices.Concat([]byte("\n"), line)
	}
	_, err := a.file.Write(line)
	if err == nil {
		err = a.file.Sync()
	}
	if err != nil {
		err = errors.Join(err, a.file.Truncate(a.size), a.file.Close())
		a.file = nil
		return err
	}
	a.size += int64(len(line))
	a.torn = false
	return nil
}

// write writes an entry, with the next ID unless it has one.
func (a *auditLog) write(e Entry) (uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
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

func (a *auditLog) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil
	}
	return a.file.Close()
}
