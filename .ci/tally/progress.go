package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
)

// place says how many of the packages have ended; nothing where nobody announced them.
func (t *tally) place() string {
	if t.packages == 0 {
		return ""
	}
	return fmt.Sprintf("  (%d of %d packages)", t.done, t.packages)
}

// complete takes the errors of commands that have ended. An error counts as a failure where no test tells of it, and so
// do packages that were announced and did not end.
func (t *tally) complete(errs []error) {
	told := t.failed > 0
	if missing := t.packages - t.done; missing > 0 {
		errs, told = append(errs, fmt.Errorf("%d of %d packages were not tested to their end", missing, t.packages)), false
	}
	for _, err := range errs {
		fmt.Fprintln(t.w, err)
		if !told {
			t.failed++
			t.failures = append(t.failures, "failed  "+err.Error())
		}
	}
}

// sideBySide is what several commands print, in whole lines. Their errors go where those of this process go.
type sideBySide struct {
	io.Reader
	running sync.WaitGroup
	mu      sync.Mutex // of w and errs
	w       *io.PipeWriter
	errs    []error
}

// then stands between commands that end first and those that begin after them.
const then = "then"

// run starts the commands, each a line for the shell, as far as the first "then", and the others when all of them have
// ended.
func run(lines []string) *sideBySide {
	s := &sideBySide{}
	s.Reader, s.w = io.Pipe()
	s.running.Go(func() {
		for len(lines) > 0 {
			end := slices.Index(lines, then)
			if end < 0 {
				end = len(lines)
			}
			s.stage(lines[:end])
			lines = lines[min(end+1, len(lines)):]
		}
	})
	go func() { s.running.Wait(); s.w.Close() }()
	return s
}

// stage runs commands side by side until all have ended.
func (s *sideBySide) stage(lines []string) {
	var commands sync.WaitGroup
	for _, line := range lines {
		commands.Go(func() {
			if err := s.copy(line); err != nil {
				s.mu.Lock()
				s.errs = append(s.errs, fmt.Errorf("%s: %w", line, err))
				s.mu.Unlock()
			}
		})
	}
	commands.Wait()
}

// copy runs a command and hands on what it prints.
func (s *sideBySide) copy(line string) error {
	cmd := exec.Command("sh", "-c", line)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	for lines := bufio.NewReader(out); err == nil; {
		var text []byte
		text, err = lines.ReadBytes('\n')
		s.mu.Lock()
		s.w.Write(text)
		s.mu.Unlock()
	}
	if err == io.EOF {
		err = nil
	}
	return errors.Join(err, cmd.Wait())
}

// wait returns the errors of the commands once all have ended; none where there are no commands.
func (s *sideBySide) wait() []error {
	if s == nil {
		return nil
	}
	s.running.Wait()
	return s.errs
}
