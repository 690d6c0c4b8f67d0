// The machine's side of a guest: starts it, sends the command, and receives the output.

package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
)

// boot starts a virtual machine, sends its guest the command, and passes on the output until the command ends.
// Ended.Booted is set when the command was sent, even if an error follows.
func boot(ctx context.Context, cfg Config, m virtualMachine) (out Ended, err error) {
	start := time.Now()
	p, err := m.start(cfg)
	if err != nil {
		return out, err
	}
	defer p.stop()
	w := &wire{port: p.port}
	if err := p.port.SetDeadline(start.Add(cfg.BootTimeout * time.Duration(m.slower))); err != nil {
		return out, err
	}
	g, err := p.awaitHello(ctx, w, m)
	if err != nil {
		return out, err
	}
	host, err := os.Hostname()
	if err != nil {
		return out, err
	}
	own, err := os.Executable()
	if err != nil {
		return out, err
	}
	out.VM = result.VM{
		Kernel: cfg.Kernel.Name, Release: g.Release, Accelerator: m.name, CPU: g.CPU, MemoryMiB: cfg.MemoryMiB}
	description, err := json.Marshal(out.VM)
	if err != nil {
		return out, err
	}
	o := guestOrder{
		Command: cfg.Command, Env: append(slices.Clone(cfg.Env), EnvVM+"="+string(description)), Shares: cfg.Shares,
		Dir: cfg.Dir, Modules: cfg.Kernel.Modules, Release: cfg.Kernel.Release,
		Now: time.Now().UnixNano(), Hostname: host, Program: own,
	}
	if err := w.sendJSON(order, o); errors.Is(err, errFrame) {
		return out, fmt.Errorf(
			"command and environment for the guest: %w: pass large values in a file below a shared folder", err)
	} else if err != nil {
		return out, p.noAnswerError(err, m)
	}
	out.Booted = time.Since(start)
	cfg.Status(fmt.Sprintf("the guest is up after %.1f s (%s)", out.Booted.Seconds(), m.name))
	out.Code, err = p.passOutput(ctx, w, cfg, m)
	return out, err
}

// awaitHello waits for the guest's first frame, in which it describes itself.
func (p *process) awaitHello(ctx context.Context, w *wire, m virtualMachine) (g guestHello, err error) {
	stop := context.AfterFunc(ctx, func() { p.port.SetDeadline(time.Now()) })
	said, content, err := w.receive()
	if !stop() {
		return g, ErrInterrupted
	}
	if err != nil {
		return g, p.noAnswerError(err, m)
	}
	if err := json.Unmarshal(content, &g); said != hello || err != nil {
		return g, fmt.Errorf("the guest began with %q: %w", said, errors.Join(err, ErrEnded))
	}
	return g, nil
}

// EnvVM is the name of the environment variable in which a guest's command finds its result.VM, as JSON.
const EnvVM = "GATEWEIGH_VM"

// passOutput passes the command's output on until it ends.
func (p *process) passOutput(ctx context.Context, w *wire, cfg Config, m virtualMachine) (code int, err error) {
	var deadline time.Time // none
	if cfg.Timeout > 0 {
		deadline = time.Now().Add(cfg.Timeout * time.Duration(m.slower))
	}
	if err := p.port.SetDeadline(deadline); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() {
		patience := endTimeout * time.Duration(m.slower)
		cfg.Status(fmt.Sprintf(
			"ending the command in the guest, which has %s for that; a second Ctrl-C ends the guest at once", patience))
		p.port.SetDeadline(time.Now().Add(patience))
		_ = w.send(signal, []byte{byte(syscall.SIGINT)}) // an error: the read below sees it too
	})
	defer stop()
	for {
		said, content, err := w.receive()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
			return 0, fmt.Errorf(
				"%w, and the command in the guest did not end within %s", ErrInterrupted, endTimeout*time.Duration(m.slower))
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, fmt.Errorf(
				"%w: %s", ErrTimeout, time.Since(deadline.Add(-cfg.Timeout*time.Duration(m.slower))).Round(time.Second))
		case err != nil:
			return 0, p.noAnswerError(err, m)
		case said == stdout:
			_, err = cfg.Stdout.Write(content)
		case said == stderr:
			_, err = cfg.Stderr.Write(content)
		case said == exit:
			code, err := exitCode(content)
			return code, errors.Join(err, outOfMemory(m.consoleText()))
		}
		if err != nil {
			return 0, fmt.Errorf("passing on what the guest prints: %w", err)
		}
	}
}

// exitCode returns the exit code of the guest's command. content is that of the frame of kind exit.
func exitCode(content []byte) (int, error) {
	var f guestExit
	if err := json.Unmarshal(content, &f); err != nil {
		return 0, fmt.Errorf("how the guest's command ended: %w", err)
	}
	if f.Error != "" {
		return 0, fmt.Errorf("in the guest: %s", f.Error)
	}
	return f.Code, nil
}

// noAnswerError returns why a guest does not answer. err is the error of the attempt to reach it.
func (p *process) noAnswerError(err error, m virtualMachine) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return p.endReason(m.consoleText())
	}
	if bad := consoleError(m.consoleText()); bad != nil { // the guest has failed, and QEMU just has not ended yet
		return bad
	}
	return fmt.Errorf("%w (%s)", ErrNoAnswer, m.name)
}

// consoleText is the text on the guest's console so far, at most maxConsole bytes.
func (m virtualMachine) consoleText() []byte {
	text, _ := io.ReadAll(io.NewSectionReader(m.console, 0, maxConsole)) // an error: less of it
	return text
}

// maxConsole is the largest number of bytes that are read of a guest's console.
const maxConsole = 16 << 20
