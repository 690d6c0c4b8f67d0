// Package gateway puts a gateway together from its parts and runs it.
package gateway

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Daemon is what a gateway needs of the process it runs in.
type Daemon struct {
	Version string
	Log     *slog.Logger
	Ready   func() // called once, when clients and control verbs are served
}

// Run serves until ctx ends, and then leaves what is in the kernel in place:
// admitted clients go on. It fails with control.ErrRunning where another daemon
// has the same run_dir.
func Run(ctx context.Context, cfg *config.Config, d Daemon) error {
	socket, err := control.Listen(cfg.ControlSocket())
	if err != nil {
		return err
	}
	defer socket.Close()
	if err := checkInterfaces(cfg); err != nil {
		return err
	}
	began := time.Now()
	status := func() control.Status {
		return control.Status{
			Version: d.Version, PID: os.Getpid(), Since: began, Datapath: cfg.Datapath.Kind,
			LAN: cfg.LAN.Interface, WAN: cfg.WAN.Interface, Sessions: map[control.State]int{}, Packets: map[string]uint64{},
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	metrics := make(chan error, 1)
	go func() {
		defer stop()
		metrics <- serveMetrics(ctx, cfg, status)
	}()
	d.Ready()
	err = socket.Serve(ctx, nobody{}, status)
	stop()
	return errors.Join(err, <-metrics)
}

func serveMetrics(ctx context.Context, cfg *config.Config, status func() control.Status) error {
	if !cfg.Metrics.Listen.IsValid() {
		<-ctx.Done()
		return nil
	}
	return control.ServeMetrics(ctx, cfg.Metrics.Listen, status, func(net.Addr) {})
}

// checkInterfaces holds the file against the machine.
func checkInterfaces(cfg *config.Config) error {
	if _, err := net.InterfaceByName(cfg.WAN.Interface); err != nil {
		return fmt.Errorf("looking for wan.interface %q: %w", cfg.WAN.Interface, err)
	}
	lan, err := net.InterfaceByName(cfg.LAN.Interface)
	if err != nil {
		return fmt.Errorf("looking for lan.interface %q: %w", cfg.LAN.Interface, err)
	}
	addrs, err := lan.Addrs()
	if err != nil {
		return fmt.Errorf("reading the addresses of %s: %w", lan.Name, err)
	}
	for _, a := range addrs {
		if a.String() == cfg.LAN.Address.String() {
			return nil
		}
	}
	return fmt.Errorf("%s does not have lan.address %s: ip addr add %s dev %s", lan.Name, cfg.LAN.Address, cfg.LAN.Address, lan.Name)
}

// Detach takes everything of a gateway out of the kernel, whether a daemon runs
// or not. What is not there is no error.
func Detach(context.Context, *config.Config, *slog.Logger) error {
	return nil // Run puts nothing there
}

// nobody is a table without clients.
type nobody struct{}

var _ control.Sessions = nobody{}

func (nobody) Get(netip.Addr) (session.Session, bool) { return session.Session{}, false }
func (nobody) Each(func(session.Session) bool)        {}
func (nobody) Admit(a netip.Addr, _ session.Login) (session.Session, error) {
	return session.Session{}, fmt.Errorf("no client has %s", a)
}
func (nobody) End(a netip.Addr, _ session.Cause) (session.Session, error) {
	return session.Session{}, fmt.Errorf("no client has %s", a)
}

// HashPassword makes what the users' file keeps of a password: argon2id with
// RFC 9106's second recommended parameters.
func HashPassword(password string) string {
	const passes, memoryKiB, lanes, bytes = 3, 64 << 10, 4, 32
	salt := make([]byte, 16)
	rand.Read(salt)
	key := argon2.IDKey([]byte(password), salt, passes, memoryKiB, lanes, bytes)
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, memoryKiB, passes, lanes, b64(salt), b64(key))
}
