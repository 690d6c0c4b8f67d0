// The memory of requests that were carried out, so that a repeated or recorded Disconnect- or CoA-Request is not
// carried out again.

package radius

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc2869"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// requestID identifies a request of a server, also when it is repeated from another port.
type requestID struct {
	from          netip.Addr
	id            byte
	authenticator [16]byte
}

// answeredRequest is the result of a request that was carried out.
type answeredRequest struct {
	forgetAt time.Time // when it may be forgotten
	timed    bool      // the request has an Event-Timestamp, by which it is refused after forgetAt
	packet   []byte    // the answer; nil: a former process has carried the request out
	late     bool      // the answer says that the request is not carried out again
}

// Bounds of what is remembered.
const (
	rememberN   = 1 << 16           // requests
	lookN       = 1 << 10           // while there are fewer, expired requests are not removed
	untimedFor  = 24 * time.Hour    // how long a request without Event-Timestamp is remembered
	againFor    = 30 * time.Second  // how long a server sends a request again (RFC 5080, 2.2.1: MRD)
	clockWindow = 300 * time.Second // RFC 5176, 6.3
)

// requestMemory remembers requests for as long as servers' clocks would let them pass again, so that nobody who has
// recorded a request can have it carried out twice. A file keeps them for the next process. While that file cannot be
// written, a file called incompleteName tells the next process that requests are missing in it.
type requestMemory struct {
	path       string // empty: in memory alone
	log        *slog.Logger
	answered   map[requestID]answeredRequest
	sweepAt    int       // how many are remembered when expired ones are removed next
	file       *os.File  // nil: it cannot be written, or path is empty
	records    int       // number of records in file
	retryWrite time.Time // when to try to write the file again, while it cannot be written
	failed     budget.OncePerMinute
}

// incompleteName is the name of the file while it lacks requests that were carried out.
func (r *requestMemory) incompleteName() string { return r.path + ".incomplete" }

// unknown stands for all requests that no file has. They came before the start of this process, which is its forgetAt
// less untimedFor.
var unknown = requestID{from: netip.IPv6Unspecified()}

// openRepeats reads the file, which may be missing, and leaves out expired requests. It logs damage.
func openRepeats(path string, now time.Time, log *slog.Logger) *requestMemory {
	r := &requestMemory{path: path, log: log, answered: map[requestID]answeredRequest{}}
	if path == "" {
		return r
	}
	complete := r.load(path, now)
	if _, err := os.Lstat(r.incompleteName()); !errors.Is(err, fs.ErrNotExist) {
		r.load(r.incompleteName(), now)
		complete = false
	}
	if !complete {
		r.answered[unknown] = answeredRequest{forgetAt: now.Add(untimedFor)}
	}
	r.rewrite(now)
	return r
}

// load reads a file. It returns false if requests may be unknown because the file cannot be read. It sets a damaged
// file aside, and takes no request from it.
func (r *requestMemory) load(path string, now time.Time) bool {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		r.log.Error("reading the servers' requests that were carried out: those older than this start are refused",
			"err", err)
		return false
	}
	found := map[requestID]answeredRequest{}
	for ; len(data) >= recordSize; data = data[recordSize:] { // a crash may have cut off the last record
		q, a, ok := readRecord(data)
		if !ok {
			r.setAside(path)
			return false
		}
		if a.forgetAt.After(now) {
			found[q] = a
		}
	}
	maps.Copy(r.answered, found)
	return true
}

// setAside takes a damaged file out of the way.
func (r *requestMemory) setAside(path string) {
	const effect = "servers' requests older than this start are refused"
	movedTo, err := statefile.SetAside(path)
	if err != nil {
		r.log.Error("a state file is damaged: "+effect, "file", path, "err", err)
		return
	}
	r.log.Error("a state file is damaged and was set aside: "+effect, "file", path, "now", movedTo,
		"err", statefile.ErrDamaged)
}

// mayBeRepeat reports whether a request may have been carried out although it is not remembered. That is so if requests
// before some time are unknown, and the request is older than that, or has no Event-Timestamp.
func (r *requestMemory) mayBeRepeat(p *radius.Packet, now time.Time) bool {
	a, found := r.answerTo(unknown, now)
	if !found {
		return false
	}
	at, timed := numericAttr(p, rfc2869.EventTimestamp_Type)
	return !timed || int64(at) <= a.forgetAt.Add(-untimedFor).Unix()
}

// A record is the sender's address, the identifier, the authenticator, forgetAt in Unix seconds, and 1 if the request
// has an Event-Timestamp.
const recordSize = 16 + 1 + 16 + 8 + 1

func appendRecord(b []byte, q requestID, a answeredRequest) []byte {
	from := q.from.As16()
	b = append(append(append(b, from[:]...), q.id), q.authenticator[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(a.forgetAt.Unix()))
	if a.timed {
		return append(b, 1)
	}
	return append(b, 0)
}

// readRecord returns false for bytes that no gateway has written.
func readRecord(b []byte) (q requestID, a answeredRequest, ok bool) {
	q.from, q.id, q.authenticator = netip.AddrFrom16([16]byte(b)).Unmap(), b[16], [16]byte(b[17:])
	until := binary.BigEndian.Uint64(b[33:])
	// A time far in the future is no damage: the server's clock may have been wrong. Event-Timestamp has 32 bits.
	ok = until > 0 && until <= 1<<32+uint64(untimedFor/time.Second) && b[41] <= 1
	return q, answeredRequest{forgetAt: time.Unix(int64(until), 0), timed: b[41] == 1}, ok
}

// rewrite replaces the file by the requests that are remembered.
func (r *requestMemory) rewrite(now time.Time) {
	var b []byte
	for q, a := range r.answered {
		b = appendRecord(b, q, a)
	}
	err := statefile.Replace(r.path, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
	var file *os.File
	if err == nil {
		file, err = os.OpenFile(r.path, os.O_APPEND|os.O_WRONLY, 0o600)
	}
	if err == nil {
		err = os.Remove(r.incompleteName())
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		if file != nil {
			file.Close()
		}
		r.fail(err, now)
		return
	}
	if !r.retryWrite.IsZero() {
		r.log.Info("radius: the servers' requests that were carried out are in their file again", "file", r.path)
	}
	r.close()
	r.file, r.records, r.retryWrite = file, len(r.answered), time.Time{}
}

// tryAgain is the time between attempts to write the file.
const tryAgain = 10 * time.Second

// fail goes on in memory alone, and has the file's name tell the next process that requests are missing.
func (r *requestMemory) fail(err error, now time.Time) {
	r.close()
	r.file, r.retryWrite = nil, now.Add(tryAgain)
	marked := os.Rename(r.path, r.incompleteName())
	if errors.Is(marked, fs.ErrNotExist) { // there was no file, or it has that name already
		var f *os.File
		if f, marked = os.OpenFile(r.incompleteName(), os.O_WRONLY|os.O_CREATE, 0o600); marked == nil {
			marked = f.Close()
		}
	}
	if marked != nil {
		err = fmt.Errorf("%w; a request could be repeated after a restart: %w", err, marked)
	}
	r.failed.Do(func() {
		r.log.Error("radius: the servers' requests that were carried out are kept in memory alone, "+
			"and after a restart older ones are refused: free space at state_dir",
			"file", r.path, "err", err)
	})
}

// unwritten reports whether the file lacks requests.
func (r *requestMemory) unwritten() bool { return r.path != "" && r.file == nil }

// retry writes the file if that failed before, and it is time to try again.
func (r *requestMemory) retry(now time.Time) {
	if r.unwritten() && !now.Before(r.retryWrite) {
		r.rewrite(now)
	}
}

func (r *requestMemory) close() {
	if r.file != nil {
		r.file.Close()
	}
}

// answerTo returns the result of a request that was carried out already.
func (r *requestMemory) answerTo(q requestID, now time.Time) (answeredRequest, bool) {
	before, found := r.answered[q]
	return before, found && now.Before(before.forgetAt)
}

// fresh reports whether a repeated request may come from a server that did not get the answer. Such a server gets the
// answer again.
func (a answeredRequest) fresh(now time.Time) bool {
	return a.timed || now.Before(a.forgetAt.Add(againFor-untimedFor))
}

// add remembers a request before it is carried out. It returns false if there is no room, and no request that it may
// forget.
func (r *requestMemory) add(q requestID, p *radius.Packet, now time.Time) bool {
	if len(r.answered) >= r.sweepAt {
		r.removeExpired(now)
	}
	if len(r.answered) >= rememberN && !r.makeRoom() {
		return false
	}
	a := answeredRequest{forgetAt: now.Add(untimedFor)}
	if at, found := numericAttr(p, rfc2869.EventTimestamp_Type); found {
		a.forgetAt, a.timed = time.Unix(int64(at), 0).Add(clockWindow+time.Second), true
	}
	r.answered[q] = a
	if r.file == nil {
		r.retry(now)
		return true
	}
	if r.records >= 2*max(len(r.answered), lookN) {
		r.rewrite(now)
		return true
	}
	r.records++
	if _, err := r.file.Write(appendRecord(nil, q, a)); err != nil {
		r.fail(err, now)
	}
	return true
}

// removeExpired removes expired requests. It is called again when twice as many requests are remembered.
func (r *requestMemory) removeExpired(now time.Time) {
	maps.DeleteFunc(r.answered, func(_ requestID, a answeredRequest) bool { return !now.Before(a.forgetAt) })
	r.sweepAt = min(max(2*len(r.answered), lookN), rememberN)
}

// makeRoom forgets the oldest eighth of the requests without Event-Timestamp, although they have not expired. It
// returns false if there are none.
func (r *requestMemory) makeRoom() bool {
	var untimed []requestID
	for q, a := range r.answered {
		if !a.timed && q != unknown {
			untimed = append(untimed, q)
		}
	}
	slices.SortFunc(untimed, func(a, b requestID) int { return r.answered[a].forgetAt.Compare(r.answered[b].forgetAt) })
	for _, q := range untimed[:(len(untimed)+7)/8] {
		delete(r.answered, q)
	}
	return len(untimed) > 0
}

// answer keeps the answer to a request. late: the answer says that the request is not carried out again.
func (r *requestMemory) answer(q requestID, packet []byte, late bool) {
	a := r.answered[q]
	a.packet, a.late = packet, late
	r.answered[q] = a
}
