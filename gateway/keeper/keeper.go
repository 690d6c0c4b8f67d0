// Package keeper has a process of its own hold open files for another process, the owner, which may be killed. The
// files then stay open, so the kernel does not end what belongs to them, such as a PPPoE session, and the owner's
// successor takes the files over.
//
//	owner ── put, drop ─▶ keeper          the owner is killed: the keeper waits for
//	      ◀── held, done ─ take           another one, as long as Serve is told, and so when
//	                                      the owner leaves
//
// Both ends talk over a socket of type SOCK_SEQPACKET whose name is abstract, so it belongs to the network namespace
// and is gone with the keeper. Each accepts only processes of its own user (SO_PEERCRED): anybody can take such a name.
// The keeper ends when it holds nothing and has no owner. A keeper that is killed loses nothing while there is an
// owner, who has the files too: another one is started and given them again.
package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Item is what a keeper holds under a key.
type Item struct {
	Key   string
	Data  json.RawMessage // for the successor; some KiB at most
	Until time.Time       // the keeper closes the files then; zero: never
	Files []int           // descriptors, which the keeper closes in this order
}

// Config is the configuration of an owner's Keeper.
type Config struct {
	Name string // name of the keeper, unique in a network namespace, such as the LAN's interface
	// Command returns a command whose process calls Serve for file descriptor 3.
	Command func() *exec.Cmd
	// Refill is called after a new keeper was started, which has no items. It must Put all items again.
	Refill func()
	Log    *slog.Logger
}

// Keeper is an owner's end. Its methods may be called from several goroutines.
type Keeper struct {
	cfg     Config
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	conn *net.UnixConn // guarded by mu; nil: no keeper is there
}

// messageTimeout is how long an end waits for the other's next message, and roomTimeout how long it waits until a
// message of its own fits into the socket's buffer.
const (
	messageTimeout = 10 * time.Second
	roomTimeout    = 2 * time.Second
)

var (
	// ErrForeign is wrapped where a process of another user has the keeper's name.
	ErrForeign = errors.New("another user's process has the keeper's name")
	errAbsent  = errors.New("there is no keeper")
)

// address is the name of a keeper's socket.
func address(name string) *net.UnixAddr {
	return &net.UnixAddr{Net: "unixpacket", Name: "@gatewayd/keeper/" + name}
}

// New returns a Keeper that is not connected yet. Open must be called next.
func New(cfg Config) *Keeper {
	k := &Keeper{cfg: cfg}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// Open finds the keeper, or starts one, and takes over what it holds: the caller owns the files and drops the items
// that it does not want. Where no keeper can be had, which err says, Keeper goes on trying until Close.
func (k *Keeper) Open() (held []Item, err error) {
	k.conn, held, err = k.connect()
	k.running.Go(k.restartWhenEnded)
	return held, err
}

// connect connects to a keeper, which it starts where there is none.
func (k *Keeper) connect() (conn *net.UnixConn, held []Item, err error) {
	for range 3 { // it may end, or be of another version
		conn, err = dial(k.cfg.Name)
		if errors.Is(err, errAbsent) {
			if err = k.start(); err == nil {
				conn, err = dial(k.cfg.Name)
			}
		}
		if err != nil {
			return nil, nil, err
		}
		if held, err = takeHeld(conn); err == nil {
			return conn, held, nil
		}
		conn.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil, fmt.Errorf("the keeper of %s does not answer (%s): %w", k.cfg.Name, address(k.cfg.Name).Name, err)
		}
	}
	return nil, nil, err
}

// start starts a keeper. Its socket is there before it runs.
func (k *Keeper) start() error {
	l, err := net.ListenUnix("unixpacket", address(k.cfg.Name))
	if errors.Is(err, syscall.EADDRINUSE) { // another process of this owner was faster
		return nil
	}
	if err != nil {
		return fmt.Errorf("making the keeper's socket: %w", err)
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return fmt.Errorf("making the keeper's socket: %w", err)
	}
	defer f.Close()
	cmd := k.cfg.Command()
	cmd.ExtraFiles = []*os.File{f}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals of a terminal are the owner's
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the keeper: %w", err)
	}
	go cmd.Wait() // it may outlive this process, and ends by itself
	return nil
}

// dial connects to a keeper.
func dial(name string) (*net.UnixConn, error) {
	conn, err := net.DialUnix("unixpacket", nil, address(name))
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		return nil, errAbsent
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to the keeper of %s: %w", name, err)
	}
	if err := checkPeer(conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("connecting to the keeper of %s: %w", name, err)
	}
	return conn, nil
}

// takeHeld takes over the items that a keeper holds. A keeper of another version is told to end.
func takeHeld(conn *net.UnixConn) (held []Item, err error) {
	defer func() {
		if err != nil {
			for _, i := range held {
				closeAll(i.Files)
			}
			held = nil
		}
	}()
	if err := send(conn, message{Verb: taking}); err != nil {
		return nil, err
	}
	for {
		m, files, err := receive(conn, messageTimeout)
		switch {
		case err != nil:
			return held, err
		case m.Version != version:
			closeAll(files)
			err := send(conn, message{Verb: end})
			if err == nil {
				err = awaitEnd(conn, endTime)
			}
			return held, errors.Join(fmt.Errorf("the keeper is of version %d, not %d", m.Version, version), err)
		case m.Verb == done:
			return held, nil
		}
		held = append(held, Item{m.Key, m.Data, m.Until, files})
	}
}

// endTime is how long a keeper may take to close all files: some 10 ms for each unit of PPP.
const endTime = time.Minute

// awaitEnd waits until a keeper that was told to end is gone. It fails with os.ErrDeadlineExceeded where the keeper is
// there after that time, and may hold everything.
func awaitEnd(conn *net.UnixConn, wait time.Duration) error {
	for {
		_, files, err := receive(conn, wait)
		closeAll(files)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf(
				"a keeper does not end, and what it holds goes on (its process: ss -xlp | grep gatewayd/keeper): %w", err)
		}
		if err != nil && !errors.Is(err, errCut) { // the connection's end
			return nil
		}
	}
}

// Put has the keeper hold an item, in the place of one with the same key; without files, other data for the files
// that it has. Once Put has returned, the owner may be killed. Without a keeper it has no effect: Refill follows.
func (k *Keeper) Put(i Item) {
	k.send(message{Verb: put, Key: i.Key, Data: i.Data, Until: i.Until}, i.Files...)
}

// Drop has the keeper close an item's files, soon. An unknown key is no error.
func (k *Keeper) Drop(key string) { k.send(message{Verb: drop, Key: key}) }

func (k *Keeper) send(m message, files ...int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn == nil {
		return
	}
	if err := send(k.conn, m, files...); err != nil {
		k.cfg.Log.Warn("the keeper of sessions does not take messages: sessions end with the daemon until a keeper has "+
			"them again", "lan", k.cfg.Name, "err", err)
		k.conn.Close()
		k.conn = nil
	}
}

// listen returns at the connection's end.
func (k *Keeper) listen(conn *net.UnixConn) error {
	for {
		m, files, err := receive(conn, 0)
		closeAll(files)
		if err != nil {
			return err
		}
		if m.Verb == refused {
			k.cfg.Log.Error(
				"the keeper of sessions has no room for a session's files: it ends with the daemon, and others may too; raise "+
					"the limit of open files (LimitNOFILE)", "lan", k.cfg.Name, "session", m.Key)
		}
	}
}

// restartWhenEnded starts another keeper whenever the present one has ended, until Close.
func (k *Keeper) restartWhenEnded() {
	for pause := time.Duration(0); ; {
		k.mu.Lock()
		conn := k.conn
		k.mu.Unlock()
		if began := time.Now(); conn != nil {
			conn.SetReadDeadline(time.Time{}) // an error: it is closed
			stop := context.AfterFunc(k.ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
			err := k.listen(conn)
			stop()
			if k.ctx.Err() != nil {
				return
			}
			k.mu.Lock()
			k.conn = nil
			k.mu.Unlock()
			conn.Close()
			if time.Since(began) > messageTimeout {
				pause = 0
			}
			k.cfg.Log.Warn("the connection with the keeper of sessions has ended: sessions end with the daemon until a keeper "+
				"has them again", "lan", k.cfg.Name, "err", err)
		}
		select {
		case <-k.ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(pause+time.Second, messageTimeout)
		if err := k.renew(); err != nil {
			k.cfg.Log.Error("no process keeps the sessions: they end with the daemon", "lan", k.cfg.Name, "err", err)
		}
	}
}

// renew connects to a keeper, which it starts where there is none, and has Refill put all items there.
func (k *Keeper) renew() error {
	conn, held, err := k.connect()
	if err != nil {
		return err
	}
	for _, i := range held { // the items are of this owner, which has the files itself
		closeAll(i.Files)
	}
	k.mu.Lock()
	k.conn = conn
	k.mu.Unlock()
	for _, i := range held {
		k.Drop(i.Key)
	}
	k.cfg.Refill()
	return nil
}

// Leave ends only this connection. The keeper goes on with the items that it holds, as after the owner's death. It
// returns false where no keeper is connected.
func (k *Keeper) Leave() bool {
	k.cancel()
	k.running.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn == nil {
		return false
	}
	k.conn.Close()
	k.conn = nil
	return true
}

// Close ends the keeper, also one that did not answer, and with it the items that it holds.
func (k *Keeper) Close() error {
	k.cancel()
	k.running.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if conn := k.conn; conn != nil {
		k.conn = nil
		defer conn.Close()
		if send(conn, message{Verb: end}) == nil {
			return awaitEnd(conn, endTime)
		}
	}
	return End(k.cfg.Name) // over another connection
}

// End ends the keeper of a name, if there is one, and with it the items that it holds. It fails if the keeper does not
// end.
func End(name string) error { return endWithin(name, endTime) }

func endWithin(name string, wait time.Duration) error {
	conn, err := dial(name)
	if errors.Is(err, errAbsent) || errors.Is(err, ErrForeign) { // nothing there is ours
		return nil
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	err = send(conn, message{Verb: end})
	switch {
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET): // it has just ended
		return nil
	case err == nil:
		err = awaitEnd(conn, wait)
	}
	if err != nil {
		return fmt.Errorf("ending the keeper of %s: %w", name, err)
	}
	return nil
}
