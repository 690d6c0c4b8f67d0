// Campaigns without a scheduler: processes on this machine stand for nodes.

package campaign

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxKills is the number of times that a share's process may be killed before RunLocal gives the share up.
const maxKills = 3

// NodeName returns the node name of the n-th process of a local campaign, from 0.
func NodeName(n int) string { return fmt.Sprintf("local%d", n+1) }

// RunLocal carries out shares without a scheduler, by Campaign.Local processes at a time with one share each. It
// repeats a share whose process was killed. It returns when all shares were carried out, or when ctx has ended and all
// processes have.
func (c *Campaign) RunLocal(ctx context.Context, shares []Share) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	var mu sync.Mutex // guards queue and deaths
	queue, deaths := shares, map[Share]int{}
	next := func() (share Share, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(queue) == 0 || ctx.Err() != nil {
			return share, false
		}
		share, queue = queue[0], queue[1:]
		return share, true
	}
	var nodes sync.WaitGroup
	for n := range c.Local {
		nodes.Go(func() {
			runtime.LockOSThread() // the thread must live: its end would kill the processes that it started (Pdeathsig)
			defer runtime.UnlockOSThread()
			for share, ok := next(); ok; share, ok = next() {
				if killed := c.runProcess(ctx, share, NodeName(n)); !killed || ctx.Err() != nil {
					continue
				}
				mu.Lock()
				if deaths[share]++; deaths[share] < maxKills {
					queue = append(queue, share)
				}
				mu.Unlock()
			}
		})
	}
	nodes.Wait()
	return context.Cause(ctx)
}

// runProcess carries out a share in a process, which writes into the attempt's folder how the attempt ended. killed
// reports that a signal ended the process before it could.
func (c *Campaign) runProcess(ctx context.Context, share Share, node string) (killed bool) {
	log, err := os.OpenFile(filepath.Join(c.Dir, logsFolder, node+".out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return false
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, c.Program(), "campaign", "block", c.Dir, "--part", strconv.Itoa(share.Part),
		"--share", strconv.Itoa(share.Number), "--node", node)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	// Setpgid: Ctrl-C at the terminal signals this process only, which then ends the others.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	err = cmd.Run()
	var exit *exec.ExitError
	return errors.As(err, &exit) && !exit.Exited()
}

// lock keeps a second process from carrying out the same campaign. The lock file has the ID of the process with the
// lock. The kernel releases the lock when that process ends.
func (c *Campaign) lock() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(c.Dir, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%s is being carried out by process %d", c.Dir, c.holder())
	}
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteString(strconv.Itoa(os.Getpid()))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { file.Close() }, nil
}

// holder returns the ID of the process that carries out a local campaign; 0 when none does.
func (c *Campaign) holder() int {
	file, err := os.Open(filepath.Join(c.Dir, lockFile))
	if err != nil {
		return 0
	}
	defer file.Close()
	held := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &held); err != nil || held.Type == unix.F_UNLCK {
		return 0
	}
	data, err := os.ReadFile(file.Name())
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}

// StopLocal ends the process that carries out a local campaign; running reports whether one did.
func (c *Campaign) StopLocal() (running bool, err error) {
	pid := c.holder()
	if pid <= 0 {
		return false, nil
	}
	return true, syscall.Kill(pid, syscall.SIGTERM)
}

// localJobs returns a job for each share of a local campaign that runs or waits; none when no process carries it out.
func (c *Campaign) localJobs() (list []Job, err error) {
	if c.Local == 0 || c.holder() == 0 {
		return nil, nil
	}
	for part, p := range c.Parts {
		attempts, err := c.attempts(part)
		if err != nil {
			return nil, err
		}
		for n := range p.Shares {
			job := Job{Share: Share{part, n}, State: "PENDING"}
			if last := len(attempts[n]) - 1; last >= 0 && !attempts[n][last].ended {
				if job.State = "RUNNING"; !alive(attempts[n][last].dir) {
					job.State = "PENDING"
				}
			} else if last >= 0 {
				continue // the attempt has ended
			}
			list = append(list, job)
		}
	}
	return list, nil
}

// alive reports whether the process of an attempt on this machine runs.
func alive(dir string) bool {
	var attempt Attempt
	err := readJSON(filepath.Join(dir, attemptFile), &attempt)
	if errors.Is(err, fs.ErrNotExist) {
		return true // the attempt is just beginning
	}
	return err == nil && syscall.Kill(attempt.PID, 0) == nil
}
