package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
)

// boot starts a virtual machine and holds the conversation with its guest. Ended.Booted is set once the guest's command
// was asked for, also when an error follows.
func boot(ctx context.Context, cfg Config, m machine) (out Ended, err error) {
	start := time.Now()
	p, err := m.start(cfg)
	if err != nil {
		return out, err
	}
	defer p.stop()
	w := &wire{port: p.port}
	if err := p.port.SetReadDeadline(start.Add(bootWithin * time.Duration(m.slower))); err != nil {
		return out, err
	}
	stop := context.AfterFunc(ctx, func() { p.port.SetReadDeadline(time.Now()) })
	said, content, err := w.receive()
	if !stop() {
		return out, context.Cause(ctx)
	}
	if err != nil {
		return out, p.silence(err, m.console)
	}
	var g greeting
	if err := json.Unmarshal(content, &g); said != hello || err != nil {
		return out, fmt.Errorf("the guest began with %q: %w", said, errors.Join(err, ErrEnded))
	}
	host, err := os.Hostname()
	if err != nil {
		return out, err
	}
	own, err := os.Executable()
	if err != nil {
		return out, err
	}
	out.VM = result.VM{Kernel: cfg.Kernel.Name, Release: g.Release, Accelerator: m.name, CPU: g.CPU, MemoryMiB: cfg.MemoryMiB}
	description, err := json.Marshal(out.VM)
	if err != nil {
		return out, err
	}
	o := order{
		Command: cfg.Command, Env: append(slices.Clone(cfg.Env), EnvVM+"="+string(description)), Shares: cfg.Shares, Dir: cfg.Dir, Modules: cfg.Kernel.Modules,
		Now: time.Now().UnixNano(), Hostname: host, Own: own,
	}
	if err := w.sendJSON(run, o); err != nil {
		return out, p.silence(err, m.console)
	}
	out.Booted = time.Since(start)
	cfg.Status(fmt.Sprintf("the guest is up after %.1f s (%s)", out.Booted.Seconds(), m.name))
	out.Code, err = p.converse(ctx, w, cfg, m)
	return out, err
}

// EnvVM is the name of the environment variable in which a guest's command finds its result.VM, as JSON.
const EnvVM = "GATEWEIGH_VM"

// converse passes the command's output on until it ends.
func (p *process) converse(ctx context.Context, w *wire, cfg Config, m machine) (code int, err error) {
	var deadline time.Time // none
	if cfg.Timeout > 0 {
		deadline = time.Now().Add(cfg.Timeout * time.Duration(m.slower))
	}
	if err := p.port.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = w.send(signal, []byte{byte(syscall.SIGINT)}) // an error: the read below sees it too
		p.port.SetReadDeadline(time.Now().Add(endWithin * time.Duration(m.slower)))
	})
	defer stop()
	for {
		said, content, err := w.receive()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, fmt.Errorf("%w: %s", ErrTimeout, time.Since(deadline.Add(-cfg.Timeout*time.Duration(m.slower))).Round(time.Second))
		case err != nil:
			return 0, p.silence(err, m.console)
		case said == stdout:
			_, err = cfg.Stdout.Write(content)
		case said == stderr:
			_, err = cfg.Stderr.Write(content)
		case said == exit:
			return parted(content)
		}
		if err != nil {
			return 0, fmt.Errorf("passing on what the guest prints: %w", err)
		}
	}
}

func parted(content []byte) (int, error) {
	var f farewell
	if err := json.Unmarshal(content, &f); err != nil {
		return 0, fmt.Errorf("how the guest's command ended: %w", err)
	}
	if f.Error != "" {
		return 0, fmt.Errorf("in the guest: %s", f.Error)
	}
	return f.Code, nil
}

// silence is the error of a guest that says nothing any more.
func (p *process) silence(err error, console string) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrNoAnswer
	}
	return p.why(console)
}
