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

// mostDeaths is how often a share's process may be killed before its share is given up.
const mostDeaths = 3

// NodeName is what the n-th process of a local campaign is called, from 0.
func NodeName(n int) string { return fmt.Sprintf("local%d", n+1) }

// RunLocal carries out shares without a scheduler: as many processes as the campaign has local nodes, each with one
// share at a time. A share whose process is killed is carried out again. It returns when all shares were carried out,
// or ctx has ended and all processes have.
func (c *Campaign) RunLocal(ctx context.Context, shares []Share) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	var mu sync.Mutex // guards queue and deaths
	queue, deaths := shares, map[Share]int{}
	next := func() (s Share, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(queue) == 0 || ctx.Err() != nil {
			return s, false
		}
		s, queue = queue[0], queue[1:]
		return s, true
	}
	var nodes sync.WaitGroup
	for n := range c.Local {
		nodes.Go(func() {
			runtime.LockOSThread() // Pdeathsig would end the processes with the thread that started them
			defer runtime.UnlockOSThread()
			for s, ok := next(); ok; s, ok = next() {
				if killed := c.process(ctx, s, NodeName(n)); !killed || ctx.Err() != nil {
					continue
				}
				mu.Lock()
				if deaths[s]++; deaths[s] < mostDeaths {
					queue = append(queue, s)
				}
				mu.Unlock()
			}
		})
	}
	nodes.Wait()
	return context.Cause(ctx)
}

// process carries out a share in a process of its own. How it ended is in the attempt's folder, unless it was killed.
func (c *Campaign) process(ctx context.Context, s Share, node string) (killed bool) {
	log, err := os.OpenFile(filepath.Join(c.Dir, logsFolder, node+".out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return false
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, c.Program(), "campaign", "block", c.Dir, "--part", strconv.Itoa(s.Part),
		"--share", strconv.Itoa(s.Number), "--node", node)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	// Ctrl-C at the terminal ends this process, which ends the others.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	err = cmd.Run()
	var exit *exec.ExitError
	return errors.As(err, &exit) && !exit.Exited()
}

// lock keeps a second process from carrying out the same campaign. The file names the one that has it, and the kernel
// takes the lock away when that ends.
func (c *Campaign) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.Dir, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%s is being carried out by process %d", c.Dir, c.holder())
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(os.Getpid()))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// holder is the process that carries out a local campaign, 0: none does.
func (c *Campaign) holder() int {
	f, err := os.Open(filepath.Join(c.Dir, lockFile))
	if err != nil {
		return 0
	}
	defer f.Close()
	held := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &held); err != nil || held.Type == unix.F_UNLCK {
		return 0
	}
	data, err := os.ReadFile(f.Name())
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

// localJobs are the shares of a local campaign that is being carried out: those that were begun run, others wait.
func (c *Campaign) localJobs() (list []Job, err error) {
	if c.Local == 0 || c.holder() == 0 {
		return nil, nil
	}
	for part, p := range c.Parts {
		tries, err := c.attempts(part)
		if err != nil {
			return nil, err
		}
		for n := range p.Shares {
			j := Job{Share: Share{part, n}, State: "PENDING"}
			if last := len(tries[n]) - 1; last >= 0 && !tries[n][last].ended {
				if j.State = "RUNNING"; !alive(tries[n][last].dir) {
					j.State = "PENDING"
				}
			} else if last >= 0 {
				continue // it came to its end, good or bad
			}
			list = append(list, j)
		}
	}
	return list, nil
}

// alive reports whether the process of an attempt on this machine is there.
func alive(dir string) bool {
	var a Attempt
	err := readJSON(filepath.Join(dir, attemptFile), &a)
	if errors.Is(err, fs.ErrNotExist) {
		return true // it begins
	}
	return err == nil && syscall.Kill(a.PID, 0) == nil
}
